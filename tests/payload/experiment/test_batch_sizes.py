"""How batch sizes and the learning rate follow the number of env runners."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.experiment.batch_sizes import batch_sizes_for
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.impala_settings import ImpalaSettings
from payload.experiment.settings import Algorithm, Experiment

NUMBERS = st.integers(0, 2000)


def filled(num_env_runners: int, run: Algorithm = "IMPALA", **config: object) -> ImpalaSettings:
    experiment = Experiment.model_validate({"run": run, "config": config})
    settings = with_defaults(experiment, atari=True, num_env_runners=num_env_runners)
    assert isinstance(settings, ImpalaSettings)
    return settings


@pytest.mark.parametrize("num_env_runners", [0, 1, 2, 13])
def test_few_env_runners_train_on_single_fragments(num_env_runners: int) -> None:
    settings = filled(num_env_runners)
    assert (settings.num_envs_per_env_runner, settings.rollout_fragment_length) == (32, 32)
    assert settings.train_batch_size_per_learner == 1024
    assert (settings.minibatch_size, settings.lr) == (128, 1e-3)


@given(st.sampled_from(["IMPALA", "APPO"]), NUMBERS)
def test_a_minibatch_is_whole_rows_within_the_batch(run: Algorithm, number: int) -> None:
    settings = filled(number, run)
    assert settings.minibatch_size is not None
    assert settings.train_batch_size_per_learner is not None
    assert settings.minibatch_size % settings.rollout_fragment_length == 0
    assert settings.minibatch_size <= settings.train_batch_size_per_learner
    assert settings.train_batch_size_per_learner % settings.fragment_steps == 0


@given(NUMBERS, NUMBERS)
def test_more_env_runners_never_have_a_smaller_batch_or_rate(one: int, other: int) -> None:
    less, more = (batch_sizes_for(number) for number in sorted((one, other)))
    assert less.factor <= more.factor
    assert less.lr_factor <= more.lr_factor
    assert less.num_envs_per_env_runner >= more.num_envs_per_env_runner


def test_the_learning_rate_grows_with_the_square_root_of_the_batch() -> None:
    assert filled(100).lr == pytest.approx(1e-3 * math.sqrt(6))


def test_learners_share_the_train_batch_and_each_minibatch() -> None:
    settings = filled(100, num_learners=2)
    assert settings.train_batch_size_per_learner == 3 * 1024
    assert settings.minibatch_size == 3 * 128


@pytest.mark.parametrize(
    "given_settings",
    [
        {"num_envs_per_env_runner": 4, "rollout_fragment_length": 20},
        {"minibatch_size": 64},
        {"train_batch_size_per_learner": 2048},
        {"lr": 1e-4},
    ],
    ids=lambda given_settings: next(iter(given_settings)),
)
def test_what_an_experiment_says_stays(given_settings: dict[str, Any]) -> None:
    settings = filled(100, **given_settings)
    assert {name: getattr(settings, name) for name in given_settings} == given_settings


def test_other_environments_do_not_scale() -> None:
    few, many = (with_defaults(Experiment(), atari=False, num_env_runners=n) for n in (2, 100))
    assert few.model_copy(update={"num_env_runners": 100}) == many


@pytest.mark.parametrize("run", ["IMPALA", "APPO"])
def test_elsewhere_a_minibatch_is_the_train_batch_unless_given(run: str) -> None:
    """RLlib's own learner does the same."""
    for given_size in (None, 64):
        raw = {"run": run, "env": "CartPole-v1", "config": {"minibatch_size": given_size}}
        settings = with_defaults(Experiment.model_validate(raw), atari=False)
        assert isinstance(settings, ImpalaSettings)
        assert settings.minibatch_size == given_size
