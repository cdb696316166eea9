"""The settings as documents and editors show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator  # type: ignore[import-untyped]
from pydantic import BaseModel

from payload.experiment.document import documents, schema
from payload.experiment.file import read_mapping
from payload.experiment.settings import SETTINGS, Experiment, Stop
from tests.project import ROOT

EXPERIMENTS = sorted([*ROOT.glob("experiments/**/*.yaml"), *ROOT.glob("rehearsal/**/*.yaml")])


@pytest.mark.parametrize("path", documents(ROOT), ids=str)
def test_a_document_is_as_make_docs_writes_it(path: Path) -> None:
    assert (ROOT / path).read_text() == documents(ROOT)[path], "run make docs"


def test_every_setting_says_what_it_is() -> None:
    models: set[type[BaseModel]] = {*SETTINGS.values(), Experiment, Stop}
    fields = [(name, field) for model in models for name, field in model.model_fields.items()]
    assert [name for name, field in fields if not field.description] == []


@pytest.fixture(scope="module")
def validator() -> Draft7Validator:
    Draft7Validator.check_schema(schema())
    return Draft7Validator(schema())


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_an_editor_accepts_the_experiments_that_there_are(
    validator: Draft7Validator, path: Path
) -> None:
    validator.validate(read_mapping(path.read_text()))


@pytest.mark.parametrize(
    "experiment",
    [
        {"run": "PPO", "config": {"lr": {"loguniform": [1e-5, 1e-3]}, "kl_coeff": 0.3}},
        {"run": "DQN", "config": {"epsilon": [[0, 1.0], [1000, 0.1]]}},
        {"config": {"num_workers": 3, "framework": "torch", "model": {"dim": 42}}},
        {"config": None, "stop": {"episode_reward_mean": 18, "time_total_s": "1h"}},
        {"config": {"horizon": 20, "normalize_actions": True}, "local_dir": "results"},
    ],
)
def test_an_editor_accepts_what_an_experiment_may_say(
    validator: Draft7Validator, experiment: dict[str, Any]
) -> None:
    assert [error.message for error in validator.iter_errors(experiment)] == []


@pytest.mark.parametrize(
    "experiment",
    [
        {"envs": "CartPole-v1"},
        {"run": "TD3"},
        {"config": {"twin_q": True}},
        {"run": "SAC", "config": {"lr": 1e-3}},
        {"config": {"gamma": 2}},
        {"config": {"seed": {"choice": [1, 2]}}},
        {"config": {"lr": {"gaussian": [0, 1]}}},
        {"stop": {"time_total": 3}},
    ],
)
def test_an_editor_underlines_what_an_experiment_may_not_say(
    validator: Draft7Validator, experiment: dict[str, Any]
) -> None:
    assert not validator.is_valid(experiment)
