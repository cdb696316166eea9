"""Batch sizes and the learning rate of a training follow the number of its env runners."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.experiment.derived_defaults import with_defaults
from payload.experiment.impala_settings import ImpalaSettings
from payload.experiment.settings import Experiment, Stop
from payload.run.batch_resizing import resize_batches, settings_while_training, tell_learners
from payload.run.env_runner_joining import set_number
from payload.run.progress import Progress
from payload.tracking.report import MEAN_OVER
from tests.payload.run.conftest import building, of_learners

pytestmark = [
    pytest.mark.slow,
    # Ray warns about a setting that it makes itself.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),
]


def driver_only(**config: Any) -> Experiment:
    return Experiment.model_validate({"config": {"num_env_runners": 0, "seed": 1, **config}})


@pytest.fixture(scope="module")
def algorithm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An algorithm that began without env runners; the tests update its learners."""
    with building(tmp_path_factory.mktemp("run"), io.StringIO()) as build:
        yield build(driver_only())


def grown(algorithm: Any, experiment: Experiment, number: int) -> Any:
    """Resizes an algorithm that began without env runners to `number`; returns its settings."""
    settings = with_defaults(experiment, atari=True)
    set_number(algorithm, number)
    settings = resize_batches(algorithm, experiment, settings)
    tell_learners(algorithm, Progress(), experiment.stop, settings)
    return settings


def test_batches_and_rate_grow_with_the_env_runners_while_it_trains(algorithm: Any) -> None:
    settings = grown(algorithm, driver_only(), 64)
    (told,) = of_learners(algorithm)
    assert algorithm.config.total_train_batch_size == told.train_batch_size == 4 * 1024
    assert told.minibatch_size == 4 * 128
    assert told.lr == pytest.approx(2e-3)
    assert settings.rollout_fragment_length == algorithm.config.get_rollout_fragment_length() == 32


def test_what_the_experiment_says_does_not_grow(algorithm: Any) -> None:
    sizes = {"train_batch_size_per_learner": 2048, "minibatch_size": 64, "lr": 1e-4}
    grown(algorithm, driver_only(**sizes), 64)
    (told,) = of_learners(algorithm)
    assert algorithm.config.total_train_batch_size == told.train_batch_size == 2048
    assert (told.minibatch_size, told.lr) == (64, 1e-4)


@given(
    begun_with=st.integers(0, 200),
    now=st.integers(0, 200),
    num_learners=st.integers(0, 8),
    run=st.sampled_from(["IMPALA", "APPO"]),
)
def test_batches_hold_whole_trajectories_of_the_length_that_a_training_began_with(
    begun_with: int, now: int, num_learners: int, run: str
) -> None:
    experiment = Experiment.model_validate({"run": run, "config": {"num_learners": num_learners}})
    began = with_defaults(experiment, atari=True, num_env_runners=begun_with)
    settings = settings_while_training(experiment, began, now)
    assert isinstance(began, ImpalaSettings)
    assert isinstance(settings, ImpalaSettings)
    assert settings.rollout_fragment_length == began.rollout_fragment_length
    assert settings.num_envs_per_env_runner == began.num_envs_per_env_runner
    assert settings.minibatch_size is not None
    assert settings.train_batch_size_per_learner is not None
    rows, rest = divmod(settings.minibatch_size, settings.rollout_fragment_length)
    assert rows >= 1
    assert rest == 0
    assert settings.train_batch_size_per_learner % settings.fragment_steps == 0


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
    algorithm: Any, name: str, config: dict[str, float], left: float
) -> None:
    settings = grown(algorithm, driver_only(**config), 0)
    stop = Stop(num_env_steps_sampled_lifetime=1000, episode_return_mean=18.0)
    tell_learners(algorithm, Progress(env_steps=250), stop, settings)
    assert [getattr(told, name) for told in of_learners(algorithm)] == [left]


def test_the_temperature_falls_to_the_final_one_most_of_it_near_the_end(algorithm: Any) -> None:
    settings = grown(algorithm, driver_only(final_temperature=0.25), 0)
    for env_steps, temperature in (0, 1.0), (500, 0.25 ** (1 / 16)), (1000, 0.25):
        stop = Stop(num_env_steps_sampled_lifetime=1000)
        tell_learners(algorithm, Progress(env_steps=env_steps), stop, settings)
        assert [told.temperature for told in of_learners(algorithm)] == [pytest.approx(temperature)]


def test_the_rate_falls_to_the_one_at_the_goal_most_of_it_near_it(algorithm: Any) -> None:
    settings = grown(algorithm, driver_only(lr=1e-3, lr_at_goal=1e-5), 0)
    for env_steps, lr in (0, 1e-3), (500, 1e-3 * 0.01 ** (1 / 16)), (1000, 1e-5):
        stop = Stop(num_env_steps_sampled_lifetime=1000)
        tell_learners(algorithm, Progress(env_steps=env_steps), stop, settings)
        assert [told.lr for told in of_learners(algorithm)] == [pytest.approx(lr)]


def test_impala_learns_alike_without_and_with_an_unreachable_return_goal(algorithm: Any) -> None:
    settings = grown(algorithm, driver_only(), 0)
    progress = Progress(env_steps=500, first_return=-20.0, best_current_return=-10.0)
    progress.returns.extend([-20.0] * MEAN_OVER)
    told = []
    for goal in None, 1e9:
        stop = Stop(num_env_steps_sampled_lifetime=1000, episode_return_mean=goal)
        tell_learners(algorithm, progress, stop, settings)
        told += of_learners(algorithm)
    assert told[0] == told[1]


@pytest.mark.parametrize("goal", [None, 1e9, -10.0], ids=["none", "unreachable", "negative"])
def test_appo_learns_alike_with_any_return_goal(algorithm: Any, goal: float | None) -> None:
    experiment = Experiment.model_validate({**driver_only().model_dump(), "run": "APPO"})
    settings = grown(algorithm, experiment, 0)
    stop = Stop(num_env_steps_sampled_lifetime=1000, episode_return_mean=goal)
    tell_learners(algorithm, Progress(env_steps=250), stop, settings)
    (told,) = of_learners(algorithm)
    assert (told.lr_left, told.entropy_coeff_left, told.used) == (0.75, 0.75, 0.25)
    assert told.temperature == pytest.approx(0.4 ** (0.25**4))
    assert settings.uniform_kl_coeff == 0.0
