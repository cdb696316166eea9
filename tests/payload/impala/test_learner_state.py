"""The state of a learner in a checkpoint: a restored learner makes the same updates."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from payload.algorithms.algorithm_config import algorithm_config
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment
from payload.impala.policy_gradient_learners import VTraceLearner
from payload.impala.rollout_fragment import RolloutFragment
from tests.local_ray import local_ray
from tests.payload.impala.test_learner import SPACES, STEPS, made_up

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pixel_statistics_once")]

RECORDED = [made_up(seed=seed) for seed in range(6)]
HALF = len(RECORDED) // 2
COEFFICIENTS = ("uniform_kl_coeff", "curr_entropy_coeff", "default_optimizer_learning_rate")
CHANGING = {
    "lr": [[0, 1e-3], [600, 1e-4]],
    "entropy_coeff": [[0, 0.02], [600, 0.001]],
    "uniform_kl_coeff": 0.03,
    "uniform_kl_coeff_at_goal": 0.004,
}
"""Coefficients that change with steps and with progress."""

OF_RAY_DATA = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")
"""Ray warns about a setting that it makes itself."""


def rllib_config(run: str = "IMPALA", num_learners: int = 0, seed: int = 1) -> Any:
    sizes = {"num_envs_per_env_runner": 3, "rollout_fragment_length": STEPS, "seed": seed}
    raw = {"run": run, "config": {**sizes, **CHANGING, "num_learners": num_learners}}
    experiment = read_experiment(raw).experiment
    return algorithm_config(experiment, with_defaults(experiment, atari=True, num_env_runners=4))


@pytest.fixture
def build() -> Iterator[Callable[..., VTraceLearner]]:
    """Builds learners in this process."""
    learners: list[VTraceLearner] = []

    def build(run: str = "IMPALA", seed: int = 1) -> VTraceLearner:
        config = rllib_config(run, seed=seed)
        learners.append(config.build_learner(spaces={DEFAULT_MODULE_ID: SPACES}))
        return learners[-1]

    yield build
    for learner in learners:
        learner.shutdown()


@pytest.fixture
def group() -> Iterator[LearnerGroup]:
    """A group of one learner in a process of its own."""
    local_ray()
    group = rllib_config(num_learners=1).build_learner_group(spaces={DEFAULT_MODULE_ID: SPACES})
    yield group
    group.shutdown()


def update(learner: VTraceLearner, fragments: list[RolloutFragment], start: int) -> list[float]:
    """Updates with each fragment; returns the coefficients of the first update."""
    used: list[float] = []
    for number, fragment in enumerate(fragments, start):
        timesteps = {NUM_ENV_STEPS_SAMPLED_LIFETIME: 100 * number}
        metrics = Learner.update(learner, episodes=[fragment], timesteps=timesteps)
        used = used or [float(metrics[DEFAULT_MODULE_ID][name].peek()) for name in COEFFICIENTS]
    return used


def assert_same_state(one: Learner, other: Learner) -> None:
    """Compares weights, optimizer, normaliser, progress and the version of the weights."""
    states = [learner.get_state(not_components="metrics_logger") for learner in (one, other)]
    np.testing.assert_equal(*states)


@pytest.mark.parametrize("run", ["IMPALA", "APPO"])
def test_a_restored_learner_makes_the_updates_that_the_saved_one_makes(
    build: Callable[..., VTraceLearner], tmp_path: Path, run: str
) -> None:
    learner, restored = build(run), build(run, seed=2)
    learner.update_settings = replace(learner.update_settings, progress=0.8, used=0.7)
    update(learner, RECORDED[:HALF], start=0)
    learner.save_to_path(tmp_path)
    restored.restore_from_path(tmp_path)
    assert_same_state(restored, learner)
    used = [update(each, RECORDED[HALF:], start=HALF) for each in (learner, restored)]
    assert used[0] == used[1]
    assert_same_state(restored, learner)


@OF_RAY_DATA
def test_a_restored_learner_in_its_own_process_makes_the_same_updates(
    group: LearnerGroup, tmp_path: Path
) -> None:
    """It is restored after other updates: state that the checkpoint lacks would differ."""

    def tell(learner: VTraceLearner) -> None:
        learner.update_settings = replace(learner.update_settings, progress=0.8, used=0.7)

    def updated(fragments: list[RolloutFragment], start: int) -> tuple[list[float], Any]:
        (result,) = group.foreach_learner(update, fragments=fragments, start=start)
        return result.get(), group.get_state(not_components="learner/metrics_logger")

    group.foreach_learner(tell)
    updated(RECORDED[:HALF], 0)
    group.save_to_path(tmp_path)
    coefficients, state = updated(RECORDED[HALF:], HALF)
    group.restore_from_path(tmp_path)
    coefficients_again, state_again = updated(RECORDED[HALF:], HALF)
    assert coefficients == coefficients_again
    np.testing.assert_equal(state, state_again)


def test_a_checkpoint_without_the_learners_own_state_is_restored(
    build: Callable[..., VTraceLearner],
) -> None:
    learner, older = build(), build()
    update(older, RECORDED[:1], start=0)
    state = older.get_state("rl_module")
    learner.set_state(state)
    assert learner.update_settings.progress == 0.0


def test_a_state_is_of_the_end_of_an_update(
    build: Callable[..., VTraceLearner], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = build()
    stepping, proceed = threading.Event(), threading.Event()

    def wait_first(gradients: Any) -> None:
        stepping.set()
        assert proceed.wait(30)
        VTraceLearner.apply_gradients(learner, gradients)

    monkeypatch.setattr(learner, "apply_gradients", wait_first)
    updating = threading.Thread(target=update, args=(learner, RECORDED[:1], 0))
    updating.start()
    assert stepping.wait(30)
    states: list[Any] = []
    saving = threading.Thread(target=lambda: states.append(learner.get_state()))
    saving.start()
    saving.join(0.5)
    assert not states
    proceed.set()
    updating.join()
    saving.join()
    assert states[0]["optimizer"]["default_policy_default_optimizer"]["state"]["state"]
