"""A learner slower than its env runners: which weights they get, and that it drops nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray

from payload.algorithms.algorithm_config import algorithm_config
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment
from payload.impala.policy_gradient_learners import VTraceLearner
from payload.run.training_callback import TrainingCallback, callback_of
from tests.local_ray import local_ray
from tests.payload.command_line import wait_for

ENV_RUNNERS = 1
UPDATE_S = 0.3
STEPS = 8
"""Steps of a fragment, which is a train batch."""
SAMPLE = "sample_get_state_and_metrics"
"""RLlib's request, and its tag, for a fragment."""

pytestmark = [
    pytest.mark.slow,
    # Ray warns about a setting that it makes itself.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context"),
]


class SlowLearner(VTraceLearner):
    """A learner during whose update the env runners sample several fragments."""

    def _update(self, *args: Any, **kwargs: Any) -> Any:
        time.sleep(UPDATE_S)
        return super()._update(*args, **kwargs)


@pytest.fixture(scope="module")
def build() -> Iterator[Callable[..., Any]]:
    """Builds an algorithm with a slow learner, in the driver or in processes of their own.

    It stops the previous one: Ray does not have CPUs for both.
    """
    algorithms: dict[int, Any] = {}

    def stop() -> None:
        for algorithm in algorithms.values():
            algorithm.stop()
        algorithms.clear()

    def build(num_learners: int) -> Any:
        if num_learners in algorithms:
            return algorithms[num_learners]
        stop()
        local_ray()
        sizes = {"num_envs_per_env_runner": 2, "rollout_fragment_length": STEPS // 2}
        counts = {"num_env_runners": ENV_RUNNERS, "num_learners": num_learners}
        experiment = read_experiment(
            {"config": {**sizes, **counts, "min_time_s_per_iteration": 0}}
        ).experiment
        config = algorithm_config(experiment, with_defaults(experiment, atari=True))
        config.learners(learner_class=SlowLearner)
        config.callbacks(TrainingCallback)
        algorithms[num_learners] = config.build_algo()
        return algorithms[num_learners]

    yield build
    stop()


def test_after_a_training_step_env_runners_get_the_newest_weights(
    build: Callable[..., Any],
) -> None:
    algorithm = build(0)
    learner, server = algorithm.learner_group._learner, algorithm._env_runner_state_server
    ray.get(server.get_version.remote())  # Waits until it has started.
    updates = 0
    while updates < 2:
        # A step requests one fragment. If the next step finds it, each step makes one update. With
        # a second request, a step finds two fragments.
        algorithm.env_runner_group.foreach_env_runner_async(SAMPLE, tag=SAMPLE)
        time.sleep(UPDATE_S)
        before = learner._weights_seq_no
        algorithm.train()
        updates = learner._weights_seq_no - before
    # The server receives weights and answers requests in several threads.
    wait_for(lambda: ray.get(server.get_version.remote()) == learner._weights_seq_no, 30.0)


@pytest.mark.parametrize("num_learners", [0, 2])
def test_nothing_that_is_sampled_is_dropped(build: Callable[..., Any], num_learners: int) -> None:
    algorithm = build(num_learners)
    callback = callback_of(algorithm)
    while callback.progress.env_steps_trained < 8 * STEPS:
        algorithm.train()
    report = callback.report
    assert report is not None
    assert report.env_steps_dropped == 0
    # Steps that learners hold, and steps that they trained on but have not reported yet.
    assert 0 <= report.env_steps - report.env_steps_trained <= 5 * STEPS * max(1, num_learners)
