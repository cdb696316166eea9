"""The language of a search space, and what cannot be searched."""

from __future__ import annotations

from typing import Any

import pytest

from payload.errors import UserError
from payload.experiment.file import read_mapping, to_yaml
from payload.experiment.read import read_experiment
from payload.experiment.search_space import KINDS, NOT_SEARCHED, SearchSpace
from payload.experiment.settings import SETTINGS, Experiment


def searching(**config: Any) -> Experiment:
    return read_experiment({"config": config}).experiment


def refusal(raw: dict[str, Any]) -> str:
    with pytest.raises(UserError) as error:
        read_experiment(raw)
    return str(error.value)


@pytest.mark.parametrize(
    "space",
    [
        {"grid_search": [1e-3, 1e-4]},
        {"choice": [1e-3, [[0, 1e-3], [1_000_000, 0.0]]]},
        {"uniform": [1e-4, 1e-3]},
        {"loguniform": [1e-5, 1e-2]},
    ],
)
def test_a_search_space_stands_in_the_place_of_a_value(space: dict[str, list[Any]]) -> None:
    ((name, found),) = searching(lr=space).search.items()
    assert (name, found.to_plain()) == ("lr", space)


def test_older_names_are_searched_under_todays() -> None:
    experiment = searching(num_sgd_iter={"randint": [1, 5]}, model={"dim": {"choice": [42, 84]}})
    assert list(experiment.search) == ["num_epochs", "image_size"]


def test_the_experiment_has_a_value_of_each_searched_setting() -> None:
    # Neither default is compatible with the other setting's candidates.
    sizes: dict[str, Any] = {
        "rollout_fragment_length": {"choice": [50, 100]},
        "minibatch_size": {"choice": [100, 200]},
    }
    assert searching(**sizes).config.model_dump()["minibatch_size"] == 100


def test_a_later_value_takes_the_place_of_a_search_space() -> None:
    file, command_line = {"config": {"lr": {"choice": [1e-3, 1e-4]}}}, {"config": {"lr": 1e-2}}
    assert read_experiment(file, command_line).experiment.search == {}
    assert list(read_experiment(command_line, file).experiment.search) == ["lr"]


def test_a_search_is_written_as_it_was_read() -> None:
    experiment = searching(lr={"loguniform": [1e-5, 1e-2]}, gamma={"grid_search": [0.9, 0.99]})
    assert read_experiment(read_mapping(to_yaml(experiment))).experiment == experiment


def test_a_setting_of_a_search_is_an_experiment_without_one() -> None:
    raw = {"num_samples": 3, "num_seeds": 2, "config": {"lr": {"uniform": [0.1, 0.2]}}}
    setting = read_experiment(raw).experiment.setting({"lr": 0.15})
    assert setting.search == {}
    assert read_mapping(to_yaml(setting))["config"] == {"lr": 0.15}
    assert setting.num_samples is None


# Candidates


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"lr": {"grid_search": [1e-3, "fast"]}}, ("config.lr", "'fast'")),
        ({"gamma": {"uniform": [0.9, 1.1]}}, ("config.gamma", "1.1", "less than or equal to 1")),
        ({"gamma": {"uniform": [-0.5, 0.9]}}, ("config.gamma", "-0.5")),
        ({"model": {"dim": {"choice": [42, 999]}}}, ("config.model.dim", "999", "210")),
        ({"num_epochs": {"uniform": [1, 4]}}, ("config.num_epochs", "1.0", "integer")),
        ({"num_epochs": {"randint": [0, 4]}}, ("config.num_epochs", "0", "equal to 1")),
        ({"minibatch_size": {"choice": [64, 65]}}, ("config.minibatch_size", "65", "multiple")),
    ],
)
def test_every_candidate_must_be_valid(config: dict[str, Any], words: tuple[str, ...]) -> None:
    line = refusal({"config": config})
    assert [word for word in words if word not in line] == []


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"eval": "__import__('os')"}, ("not evaluated", *KINDS)),
        ({"gridsearch": [1, 2]}, ("gridsearch", "did you mean grid_search?")),
        ({"qrandn": [0, 1, 2]}, ("qrandn", *KINDS)),
        ({"sample_from": "x"}, ("sample_from", "neither a number nor a list")),
        ({"grid_search": []}, ("[]", "{grid_search: [...]}")),
        ({"grid_search": 1e-3}, ("0.001", "{grid_search: [...]}")),
        ({"uniform": [1, 2], "choice": [1]}, ("one key",)),
        ({"uniform": [1]}, ("[1]", "two numbers [a, b]")),
        ({"uniform": [1, "2"]}, ("two numbers [a, b]",)),
        ({"randint": [1, 2.5]}, ("two whole numbers [a, b]",)),
        ({"uniform": [2, 1]}, ("[2, 1]", "less than the second")),
        ({"loguniform": [0, 1]}, ("[0, 1]", "greater than 0")),
        ({"uniform": [0, float("inf")]}, ("inf",)),
    ],
)
def test_a_malformed_search_space_is_one_line(space: Any, words: tuple[str, ...]) -> None:
    line = refusal({"config": {"lr": space}})
    assert line.startswith("config.lr: ")
    assert [word for word in words if word not in line] == []


# What cannot be searched


@pytest.mark.parametrize("name", NOT_SEARCHED)
def test_what_all_trials_have_in_common_cannot_be_searched(name: str) -> None:
    line = refusal({"config": {name: {"randint": [1, 3]}}})
    assert line == f"config.{name}: cannot be searched: {NOT_SEARCHED[name]}"


@pytest.mark.parametrize("name", NOT_SEARCHED)
def test_what_cannot_be_searched_is_a_setting(name: str) -> None:
    assert all(name in settings.model_fields for settings in SETTINGS.values())


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ({"run": {"grid_search": ["IMPALA", "APPO"]}}, ("run: ", "only settings in config")),
        ({"env": {"choice": ["CartPole-v1"]}}, ("env: ", "only settings in config")),
        ({"stop": {"time_total_s": {"choice": [1, 2]}}}, ("stop.time_total_s", "only settings")),
        ({"config": {"num_workers": {"choice": [1]}}}, ("config.num_workers", "how many trials")),
        ({"config": {"num_gpus": {"choice": [0, 1]}}}, ("config.num_gpus", "single settings")),
        ({"config": {"env_config": {"x": {"choice": [1]}}}}, ("config.env_config.x", "compared")),
        ({"config": {"env_config": {"choice": [{}]}}}, ("config.env_config: ", "compared")),
        ({"config": {"lrr": {"choice": [1]}}}, ("config.lrr", "unknown key")),
    ],
)
def test_what_is_not_a_setting_of_its_own_cannot_be_searched(
    raw: dict[str, Any], words: tuple[str, ...]
) -> None:
    line = refusal(raw)
    assert [word for word in words if word not in line] == []


@pytest.mark.parametrize("name", ["uniform", "choice", "eval"])
def test_an_argument_of_an_environment_may_be_named_as_a_search_space_is(name: str) -> None:
    for arguments in ({name: True}, {name: True, "level": 3}, {"inner": {name: True}}):
        experiment = read_experiment({"config": {"env_config": arguments}}).experiment
        assert experiment.config.env_config == arguments


def test_tune_never_draws_the_upper_bound_of_randint() -> None:
    assert SearchSpace("randint", (1, 5)).candidates == (1, 4)
