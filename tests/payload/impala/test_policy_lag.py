"""Which weights env runners get from a learner that is slower than they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from payload.experiment.read import read_experiment
from payload.experiment.settings import with_defaults
from payload.impala.learner import VTraceLearner
from payload.impala.rllib_config import algorithm_config
from tests.payload.command_line import wait_for

ENV_RUNNERS = 3
UPDATE_S = 0.3


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An algorithm whose env runners sample several fragments during one update."""
    update = VTraceLearner._update

    def slowly(*args: Any, **kwargs: Any) -> Any:
        time.sleep(UPDATE_S)
        return update(*args, **kwargs)

    monkeypatch.setattr(VTraceLearner, "_update", slowly)
    sizes = {"num_envs_per_env_runner": 2, "rollout_fragment_length": 4}
    config = {**sizes, "num_env_runners": ENV_RUNNERS, "min_time_s_per_iteration": 0}
    experiment = read_experiment({"config": config}).experiment
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    algorithm = algorithm_config(experiment, with_defaults(experiment, atari=True)).build_algo()
    yield algorithm
    algorithm.stop()
    ray.shutdown()


# Ray warns of a setting that it makes itself.
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")
@pytest.mark.slow
def test_after_a_training_step_env_runners_get_the_newest_weights(slow: Any) -> None:
    learner, server = slow.learner_group._learner, slow._env_runner_state_server
    ray.get(server.get_version.remote())  # It has started.
    updates = 0
    while updates < 2:
        before = learner._weights_seq_no
        slow.train()
        updates = learner._weights_seq_no - before
    # The server takes in what it is sent, and answers, in several threads.
    wait_for(lambda: ray.get(server.get_version.remote()) == learner._weights_seq_no, 30.0)
