"""Numbers as people write them, in `stop` and `config`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from payload.errors import UserError
from payload.experiment.read import read_experiment

FRACTIONS = ("time_total_s", "episode_return_mean", "episode_len_mean")


@pytest.mark.parametrize(
    ("criterion", "written", "attribute", "meaning"),
    [
        ("timesteps_total", "1e6", "num_env_steps_sampled_lifetime", 1_000_000),
        ("timesteps_total", "'1e6'", "num_env_steps_sampled_lifetime", 1_000_000),
        ("timesteps_total", "1_000_000", "num_env_steps_sampled_lifetime", 1_000_000),
        ("timesteps_total", "1000.0", "num_env_steps_sampled_lifetime", 1000),
        ("training_iteration", "10.0", "training_iteration", 10),
        ("time_total_s", "1h", "time_total_s", 3600),
        ("time_total_s", "1h30m", "time_total_s", 5400),
        ("time_total_s", "90 s", "time_total_s", 90),
        ("time_total_s", "1.5 h", "time_total_s", 5400),
        ("time_total_s", "2d", "time_total_s", 172_800),
        ("episodes_total", "1e3", "num_episodes_lifetime", 1000),
        ("env_runners/num_episodes_lifetime", "7", "num_episodes_lifetime", 7),
        ("env_runners/episode_len_mean", "195", "episode_len_mean", 195),
        ("sampler_results/episode_len_mean", "195", "episode_len_mean", 195),
        ("sampler_results/episode_reward_mean", "18", "episode_return_mean", 18),
        ("episode_reward_mean", "'1.8e1'", "episode_return_mean", 18),
    ],
)
def test_a_criterion_is_read_as_it_is_meant(
    tmp_path: Path, criterion: str, written: str, attribute: str, meaning: float
) -> None:
    file = tmp_path / "experiment.yaml"
    file.write_text(f"stop: {{{criterion}: {written}}}")
    value = getattr(read_experiment(file).experiment.stop, attribute)
    assert value == meaning
    assert isinstance(value, float if attribute in FRACTIONS else int)


@pytest.mark.parametrize(
    ("name", "written", "meaning"),
    [
        ("train_batch_size", 1e3, 1000),
        ("num_env_runners", 2.0, 2),
        ("seed", "1e3", 1000),
        ("lr", "5e-4", 5e-4),
        ("min_time_s_per_iteration", 2, 2.0),
        ("env_step_timeout_s", "2m", 120.0),
    ],
)
def test_a_setting_is_read_as_it_is_meant(name: str, written: Any, meaning: float) -> None:
    config = read_experiment({"config": {name: written}}).experiment.config
    name = "train_batch_size_per_learner" if name == "train_batch_size" else name
    assert getattr(config, name) == meaning
    assert type(getattr(config, name)) is type(meaning)


def test_the_candidates_of_a_search_are_read_as_they_are_meant() -> None:
    config = {"train_batch_size": {"grid_search": [1e3, 2e3]}, "num_epochs": {"randint": [1.0, 3]}}
    search = read_experiment({"config": config}).experiment.search
    assert repr(search["train_batch_size_per_learner"].values) == "(1000, 2000)"
    assert repr(search["num_epochs"].values) == "(1, 3)"


def test_a_number_beside_config_is_read_as_it_is_meant() -> None:
    assert read_experiment({"num_seeds": 3.0}).experiment.num_seeds == 3


@pytest.mark.parametrize(
    ("stop", "said"),
    [
        ({"time_total_s": "1 hr"}, "stop.time_total_s: '1 hr': "),
        ({"time_total_s": "soon"}, "stop.time_total_s: 'soon': "),
        ({"timesteps_total": 1.5}, "stop.timesteps_total: 1.5: "),
        ({"timesteps_total": "1h"}, "stop.timesteps_total: '1h': "),
        ({"training_iteration": True}, "stop.training_iteration: True: "),
    ],
)
def test_a_value_that_is_not_a_number_is_refused(stop: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as error:
        read_experiment({"stop": stop})
    assert str(error.value).startswith(said)
    if "time_total_s" in stop:
        assert str(error.value).endswith("; seconds, or 90s, 30m, 1h30m, 2d")
