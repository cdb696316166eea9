"""The tables of old names, and the note on each translation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.experiment.old_names import STRUCTURED, Translated, translate_config, translate_stop
from payload.experiment.old_tables import (
    IGNORED_BY_IMPALA,
    IGNORED_CONFIG,
    IGNORED_MODEL,
    MODEL_WITHOUT_SUCCESSOR,
    ONE_VALUE,
    RENAMED_CONFIG,
    RENAMED_IN,
    RENAMED_MODEL,
    RENAMED_STOP,
    WITHOUT_SUCCESSOR,
)
from payload.experiment.ppo_dqn_sac_settings import PPOSettings
from payload.experiment.read import read_experiment
from payload.experiment.settings import SETTINGS, Algorithm, Stop


def only_problem(translated: Translated) -> str:
    """Returns the one line that says what cannot be translated."""
    (line,) = translated.problems
    return line


IGNORED = IGNORED_CONFIG | IGNORED_BY_IMPALA
values = st.one_of(st.integers(), st.floats(allow_nan=False), st.text(), st.none(), st.booleans())


RENAMED = RENAMED_CONFIG | RENAMED_MODEL | {k: v for m in RENAMED_IN.values() for k, v in m.items()}


@pytest.mark.parametrize("new", sorted(set(RENAMED.values())))
def test_a_renamed_setting_exists_under_its_new_name(new: str) -> None:
    assert any(new in settings.model_fields for settings in SETTINGS.values())


@pytest.mark.parametrize("new", sorted(set(RENAMED_STOP.values())))
def test_a_renamed_criterion_exists_under_its_new_name(new: str) -> None:
    assert new in {field.alias or name for name, field in Stop.model_fields.items()}


def test_no_name_of_today_is_taken_for_an_old_one() -> None:
    old = {*RENAMED_CONFIG, *IGNORED, *ONE_VALUE, *WITHOUT_SUCCESSOR}
    assert not {name for settings in SETTINGS.values() for name in settings.model_fields} & old


def test_no_old_name_is_both_renamed_and_ignored() -> None:
    tables: list[Iterable[str]] = [
        RENAMED_CONFIG,
        IGNORED,
        ONE_VALUE,
        WITHOUT_SUCCESSOR,
        STRUCTURED,
    ]
    names = [name for table in tables for name in table]
    assert [name for name, times in Counter(names).items() if times > 1] == []


def test_no_old_model_name_is_both_renamed_and_ignored() -> None:
    tables = [RENAMED_MODEL, IGNORED_MODEL, MODEL_WITHOUT_SUCCESSOR]
    names = [name for table in tables for name in table]
    assert [name for name, times in Counter(names).items() if times > 1] == []


@given(st.sampled_from(sorted(RENAMED_CONFIG)), values)
def test_a_renamed_setting_keeps_its_value(old: str, value: Any) -> None:
    assert translate_config({old: value}).values == {RENAMED_CONFIG[old]: value}


@given(st.sampled_from(sorted(RENAMED_CONFIG)), st.integers())
def test_a_renamed_setting_is_said_in_one_note(old: str, value: int) -> None:
    notes = translate_config({old: value}).notes
    assert notes == [f"config.{old} is now {RENAMED_CONFIG[old]}: {value}"]


@given(st.sampled_from(sorted(RENAMED_MODEL)), values)
def test_a_renamed_model_setting_keeps_its_value(old: str, value: Any) -> None:
    assert translate_config({"model": {old: value}}).values == {RENAMED_MODEL[old]: value}


@given(st.sampled_from(sorted(RENAMED_STOP)), values)
def test_a_renamed_criterion_keeps_its_value(old: str, value: Any) -> None:
    assert translate_stop({old: value}).values == {RENAMED_STOP[old]: value}


@pytest.mark.parametrize("old", sorted(IGNORED))
def test_an_ignored_setting_is_left_out(old: str) -> None:
    assert translate_config({old: 1}).values == {}


@pytest.mark.parametrize("old", sorted(IGNORED))
def test_an_ignored_setting_is_named_with_the_reason(old: str) -> None:
    assert translate_config({old: 1}).notes == [f"config.{old} is ignored: {IGNORED[old]}"]


@pytest.mark.parametrize("old", sorted(IGNORED_MODEL))
def test_an_ignored_model_setting_is_named_with_the_reason(old: str) -> None:
    found = translate_config({"model": {old: 1}})
    assert found.values == {}
    assert found.notes == [f"config.model.{old} is ignored: {IGNORED_MODEL[old]}"]


@pytest.mark.parametrize("order", [1, -1], ids=["old first", "new first"])
@pytest.mark.parametrize("old", sorted(RENAMED_CONFIG))
def test_an_old_and_a_new_name_of_one_setting_are_an_error(old: str, order: int) -> None:
    new = RENAMED_CONFIG[old]
    assert re.search(
        rf"config\.{old}: {new} is set too",
        only_problem(translate_config(dict([(old, 1), (new, 1)][::order]))),
    )


def test_two_old_names_of_one_setting_are_an_error() -> None:
    assert re.search(
        "num_env_runners is set too; keep one of the two",
        only_problem(translate_config({"num_workers": 1, "num_rollout_workers": 1})),
    )


def test_an_old_model_name_and_the_new_name_are_an_error() -> None:
    assert re.search(
        r"config\.model\.dim: image_size is set too",
        only_problem(translate_config({"model": {"dim": 42}, "image_size": 42})),
    )


def test_gpus_and_learners_together_are_an_error() -> None:
    assert re.search(
        r"config\.num_gpus: num_learners is set too",
        only_problem(translate_config({"num_gpus": 1, "num_learners": 1})),
    )


@pytest.mark.parametrize("old", sorted(RENAMED_STOP))
def test_an_old_and_a_new_name_of_one_criterion_are_an_error(old: str) -> None:
    new = RENAMED_STOP[old]
    assert re.search(
        rf"stop\.{old}: {new} is set too", only_problem(translate_stop({old: 1, new: 1}))
    )


def test_names_of_today_pass_without_a_note() -> None:
    config = {"num_env_runners": 2, "lr": 1e-3}
    assert translate_config(config) == Translated(config)


@pytest.mark.parametrize(
    ("num_gpus", "num_learners", "num_gpus_per_learner"),
    [(0, 0, 0.0), (1, 1, 1.0), (2, 2, 1.0), (0.5, 1, 0.5)],
)
def test_each_gpu_gets_a_learner(
    num_gpus: float, num_learners: int, num_gpus_per_learner: float
) -> None:
    assert translate_config({"num_gpus": num_gpus}).values == {
        "num_learners": num_learners,
        "num_gpus_per_learner": num_gpus_per_learner,
    }


@pytest.mark.parametrize(
    "num_gpus", ["1", True, -1, 1.5, None, [1], float("nan"), float("inf"), float("-inf")]
)
def test_gpus_that_no_learner_can_have_are_an_error(num_gpus: Any) -> None:
    assert re.search(r"config\.num_gpus: ", only_problem(translate_config({"num_gpus": num_gpus})))


def test_sampling_exploration_becomes_explore() -> None:
    found = translate_config({"exploration_config": {"type": "StochasticSampling"}})
    assert found.values == {"explore": True}
    assert found.notes == ["config.exploration_config is now explore: True"]


def test_another_exploration_is_ignored_by_name() -> None:
    notes = translate_config({"exploration_config": {"type": "Curiosity"}}).notes
    assert notes[0].startswith("config.exploration_config.type Curiosity is ignored: ")


ARTICLE = {"initial_epsilon": 1.0, "final_epsilon": 0.02, "epsilon_timesteps": 500_000}
"""Settings from tsmatz/minecraft-rl-on-ray-cluster."""


@pytest.mark.parametrize("run", ["IMPALA", "APPO", "PPO", "DQN"])
def test_epsilon_greedy_becomes_epsilon(run: Algorithm) -> None:
    found = translate_config({"exploration_config": {"type": "EpsilonGreedy", **ARTICLE}}, run)
    assert found.values == {"epsilon": [[0, 1.0], [500_000, 0.02]]}
    assert found.notes == ["config.exploration_config is now epsilon: [[0, 1.0], [500000, 0.02]]"]


def test_epsilon_greedy_waits_for_its_warmup() -> None:
    given = {"type": "EpsilonGreedy", "warmup_timesteps": 1000, **ARTICLE}
    found = translate_config({"exploration_config": given})
    assert found.values == {"epsilon": [[0, 1.0], [1000, 1.0], [501_000, 0.02]]}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"epsilon_timestep": 9}, "epsilon_timestep: unknown key (did you mean epsilon_timesteps"),
        ({"epsilon_timesteps": "1e5"}, "epsilon_timesteps: '1e5' is not a whole number"),
        ({"final_epsilon": None}, "final_epsilon: None is not a number"),
    ],
)
def test_what_epsilon_greedy_cannot_take_is_an_error(wrong: dict[str, Any], said: str) -> None:
    found = translate_config({"exploration_config": {"type": "EpsilonGreedy", **wrong}})
    assert only_problem(found).startswith(f"config.exploration_config.{said}")


def test_convolutions_keep_their_shape() -> None:
    filters = [[16, [8, 8], 4], [32, 4, 2]]
    model = {"conv_filters": filters, "fcnet_hiddens": [64]}
    read = read_experiment({"run": "PPO", "env": "Any-v0", "config": {"model": model}}).experiment
    assert isinstance(read.config, PPOSettings)
    assert read.config.conv_filters == filters


def test_epsilon_beside_rmsprops_settings_is_rmsprops() -> None:
    found = translate_config({"epsilon": 0.1, "decay": 0.99})
    assert found.values == {}


@pytest.mark.parametrize("run", ["PPO", "DQN", "SAC"])
def test_a_reason_to_ignore_is_true_of_the_algorithm(run: Algorithm) -> None:
    notes = translate_config({"vtrace": True}, run).notes
    assert notes == [f"config.vtrace is ignored: {run} has no such setting"]
