"""What a resumed run may change."""

from __future__ import annotations

from typing import Any

import pytest

from payload.errors import UserError
from payload.experiment.fragment_settings import FragmentSettings
from payload.experiment.read import read_experiment
from payload.experiment.resume import CHANGES_NOTHING, STAYS, check_resumable, resume_key
from payload.experiment.settings import SETTINGS, Experiment
from payload.impala.module import network_of

PONG: dict[str, Any] = {"env": "PongNoFrameskip-v4", "stop": {"time_total_s": 60}}
LR_SEARCH = {"lr": {"grid_search": [1e-3, 1e-4]}}


def experiment(config: dict[str, Any] | None = None, **changes: Any) -> Experiment:
    return read_experiment({**PONG, "config": config or {}, **changes}).experiment


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (experiment(run="APPO"), "run is IMPALA in this run and cannot become APPO"),
        (experiment(env="ALE/Breakout-v5"), "env is PongNoFrameskip-v4 in this run"),
        (experiment({"env_config": {"noop_max": 1}}), "config.env_config is {}"),
        (experiment({"frame_stack": 2}), "config.frame_stack is 4 in this run and cannot become 2"),
        (experiment({"clip_rewards": False}), "config.clip_rewards is True"),
        (experiment({"network": "nature"}), "config.network is small"),
        (experiment({"seed": 1}), "config.seed is the default in this run and cannot become 1"),
        (experiment({"image_width": 40}), "config.image_width is 42"),
    ],
)
def test_what_decides_what_is_learned_stays(changed: Experiment, named: str) -> None:
    with pytest.raises(UserError) as error:
        check_resumable(experiment(), changed, "--resume results/runs/a")
    assert str(error.value).startswith(f"--resume results/runs/a: {named}")
    assert resume_key(changed) != resume_key(experiment())


@pytest.mark.parametrize(
    "changed",
    [
        experiment(stop={"env_runners/episode_return_mean": 18}),
        experiment({"num_env_runners": 3, "num_gpus": 1}),
        experiment({"num_workers": 3}),
        experiment({"evaluation_interval": 5, "evaluation_duration": 3}),
        experiment({"env_step_timeout_s": 5.0, "min_time_s_per_iteration": 1.0}),
        experiment(pip_packages=["shapely"], environment_variables={"LEVEL": "2"}),
        experiment(tensorboard=True),
        # The defaults, set explicitly.
        experiment({"image_size": 42, "image_width": 42, "network": "small"}),
    ],
)
def test_what_changes_nothing_that_is_learned_changes_without_a_word(changed: Experiment) -> None:
    assert check_resumable(experiment(), changed, "--resume") == []
    assert resume_key(changed) == resume_key(experiment())


def test_a_hyperparameter_changes_with_a_line() -> None:
    changed = experiment({"lr": 1e-4, "gamma": 0.98})
    assert check_resumable(experiment(), changed, "--resume") == [
        "config.gamma was 0.99 and is 0.98 from here on",
        "config.lr was the default and is 0.0001 from here on",
    ]
    # The queue cannot ask the user, so it starts a new run.
    assert resume_key(changed) != resume_key(experiment())


def test_a_search_keeps_its_space() -> None:
    searching = experiment(LR_SEARCH)
    assert check_resumable(searching, experiment(LR_SEARCH), "--resume") == []
    for other in experiment({"lr": {"grid_search": [1e-3]}}), experiment(LR_SEARCH, num_seeds=3):
        assert resume_key(other) != resume_key(searching)
        with pytest.raises(UserError, match="start a new run"):
            check_resumable(searching, other, "--resume")


def test_a_resumed_run_keeps_its_network() -> None:
    """Weights of other shapes cannot be restored."""
    config = experiment(run="PQN").config
    assert isinstance(config, FragmentSettings)
    assert set(network_of(config)) - {"q_values"} <= STAYS


def test_the_rule_names_settings_that_there_are() -> None:
    settings = {name for model in SETTINGS.values() for name in model.model_fields}
    assert settings >= STAYS | CHANGES_NOTHING
    assert not STAYS & CHANGES_NOTHING
