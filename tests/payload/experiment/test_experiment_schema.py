"""The schema of an experiment file says what the payload takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from payload.experiment.old_names import IGNORED_CONFIG, RENAMED_CONFIG, RENAMED_STOP
from payload.experiment.schema import experiment_schema
from payload.experiment.settings import parse_experiment
from tests.project import ROOT


def accepts(experiment: dict[str, Any]) -> bool:
    return jsonschema.Draft202012Validator(experiment_schema()).is_valid(experiment)


def test_the_file_is_the_schema_of_today() -> None:
    """If not: make schema."""
    assert json.loads((ROOT / "payload/experiment/experiment.schema.json").read_text()) == experiment_schema()


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.yaml")), ids=str)
def test_every_experiment_that_is_shipped_is_one(path: Path) -> None:
    experiment = yaml.safe_load(path.read_text())
    assert accepts(experiment)
    assert parse_experiment(experiment)


@pytest.mark.parametrize("name", [*RENAMED_CONFIG, *IGNORED_CONFIG])
def test_older_settings_are_known(name: str) -> None:
    settings = experiment_schema()["$defs"]["Settings"]["properties"]
    assert name in settings


def test_older_criteria_are_known() -> None:
    assert set(RENAMED_STOP) < set(experiment_schema()["$defs"]["Stop"]["properties"])


@pytest.mark.parametrize(
    "experiment",
    [
        {"runs": "IMPALA"},
        {"run": "DQN"},
        {"config": {"num_wokers": 1}},
        {"config": {"num_workers": "two"}},
        {"config": {"gamma": 2}},
        {"config": {"model": {"dims": 42}}},
        {"stop": {"reward": 18}},
    ],
    ids=str,
)
def test_what_the_payload_refuses_is_no_experiment(experiment: dict[str, Any]) -> None:
    assert not accepts(experiment)


@pytest.mark.parametrize(
    "experiment",
    [
        {},
        {"config": None},
        {"config": {"lr": [[0, 0.1], [1000, 0.01]]}},
        {"config": {"num_gpus": 1, "num_workers": 13, "model": {"dim": 42, "grayscale": True}}},
    ],
    ids=str,
)
def test_what_the_payload_takes_is_an_experiment(experiment: dict[str, Any]) -> None:
    assert accepts(experiment)
    assert parse_experiment(experiment)
