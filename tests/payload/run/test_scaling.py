"""The sizes and the learning rate of a training follow the number of its env runners."""

from __future__ import annotations

from typing import Any

import pytest

from payload.experiment.settings import Experiment, Stop, with_defaults
from payload.run.env_runner_joining import set_number
from payload.run.progress import Progress
from payload.run.scaling import follow_scale, tell_learners
from tests.payload.run.conftest import Build, of_learners

pytestmark = [
    pytest.mark.slow,
    # Ray warns of a setting that it makes itself.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),
]


def grown(build: Build, experiment: Experiment, number: int) -> tuple[Any, Any]:
    """An algorithm that began without env runners, and its settings with so many."""
    algorithm, settings = build(experiment), with_defaults(experiment, atari=True)
    set_number(algorithm, number)
    settings = follow_scale(algorithm, experiment, settings)
    tell_learners(algorithm, Progress(), experiment.stop, settings)
    return algorithm, settings


def driver_only(**config: Any) -> Experiment:
    return Experiment.model_validate({"config": {"num_env_runners": 0, "seed": 1, **config}})


def test_batches_and_rate_grow_with_the_env_runners_while_it_trains(build: Build) -> None:
    algorithm, settings = grown(build, driver_only(), 64)
    assert algorithm.config.total_train_batch_size == 4 * 1024
    assert of_learners(algorithm, "minibatch_size") == [4 * 128]
    assert of_learners(algorithm, "lr") == [pytest.approx(2e-3)]
    assert settings.rollout_fragment_length == algorithm.config.get_rollout_fragment_length() == 32


def test_what_the_experiment_says_does_not_grow(build: Build) -> None:
    sizes = {"train_batch_size_per_learner": 2048, "minibatch_size": 64, "lr": 1e-4}
    algorithm, _ = grown(build, driver_only(**sizes), 64)
    assert algorithm.config.total_train_batch_size == 2048
    assert of_learners(algorithm, "minibatch_size") == [64]
    assert of_learners(algorithm, "lr") == [1e-4]


@pytest.mark.parametrize(
    ("name", "config", "left"),
    [
        ("lr_left", {}, 0.75),
        ("lr_left", {"lr": 1e-3}, 1.0),
        ("entropy_coeff_left", {}, 0.75),
        ("entropy_coeff_left", {"entropy_coeff": 0.01}, 1.0),
    ],
)
def test_what_the_experiment_leaves_to_defaults_falls_to_0_over_the_run(
    build: Build, name: str, config: dict[str, float], left: float
) -> None:
    algorithm, settings = grown(build, driver_only(**config), 0)
    stop = Stop(num_env_steps_sampled_lifetime=1000, episode_return_mean=18.0)
    tell_learners(algorithm, Progress(env_steps=250), stop, settings)
    assert of_learners(algorithm, name) == [left]


@pytest.mark.parametrize("goal", [None, 1e9, -10.0], ids=["none", "unreachable", "negative"])
def test_appo_learns_alike_with_any_return_goal(build: Build, goal: float | None) -> None:
    experiment = Experiment.model_validate({**driver_only().model_dump(), "run": "APPO"})
    algorithm, settings = grown(build, experiment, 0)
    stop = Stop(num_env_steps_sampled_lifetime=1000, episode_return_mean=goal)
    tell_learners(algorithm, Progress(env_steps=250), stop, settings)
    told = [of_learners(algorithm, name) for name in ("lr_left", "entropy_coeff_left")]
    assert (told, settings.uniform_kl_coeff) == ([[0.75], [0.75]], 0.0)
