"""IMPALA, APPO and PQN in the driver, which gives every train batch to every learner."""

import time
from typing import Any

import ray
from ray.rllib.algorithms.appo import APPO
from ray.rllib.algorithms.impala import IMPALA
from ray.rllib.core import COMPONENT_ENV_TO_MODULE_CONNECTOR
from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from payload.environments.observation_filter import statistics_of
from payload.impala.state_server import StateServer

POLL_S = 0.1
WAIT_S = 0.01
"""Time to wait for results of learners before checking the queues again."""


class VolleyIMPALA(IMPALA):
    """RLlib's IMPALA, but every learner gets every train batch and the driver does not sample."""

    def setup(self, config: Any) -> None:
        super().setup(config)
        # AlgorithmConfig.build_learner_group has no setting for the class.
        self.learner_group.__class__ = PatientLearnerGroup
        if config.num_env_runners > 0:
            self._env_runner_state_server = self._start_state_server(config)

    def _start_state_server(self, config: Any) -> Any:
        """Starts the actor and passes it to the env runners, as RLlib's setup does with its own."""
        options = ray.remote(
            num_cpus=0,
            max_restarts=-1,
            max_concurrency=config.env_runner_state_server_max_concurrency,
        )
        server = options(StateServer).remote(WEIGHTS_SEQ_NO)

        def take(env_runner: Any) -> None:
            env_runner._env_runner_state_server = server

        self.env_runner_group.foreach_env_runner(take, local_env_runner=True)
        return server

    def _sample_and_get_connector_states(self) -> Any:
        """Waits while every env runner is out of service; RLlib's driver would sample for them.

        The driver has no display (`run_under`), and a fault in its environment would end the run.
        """
        group = self.env_runner_group
        if group.num_remote_env_runners() > 0 and group.num_healthy_remote_workers() == 0:
            time.sleep(POLL_S)
            return [], [], [], set()
        sampled = super()._sample_and_get_connector_states()
        # RLlib drops the states of all samples that come between two broadcasts of weights.
        if sampled[1] and statistics_of(self) is not None:
            states = [state[COMPONENT_ENV_TO_MODULE_CONNECTOR] for state in sampled[1]]
            self.env_runner._env_to_module.merge_states(states)
        return sampled


class VolleyAPPO(VolleyIMPALA, APPO):
    """RLlib's APPO with the same changes."""


class PatientLearnerGroup(LearnerGroup):
    """Waits for room, where RLlib's own group would drop a train batch.

    RLlib's also gives a batch to only those of several learners that have room. Learners average
    each gradient step, so one that skips a batch averages its next one with another's last one.
    """

    def update(self, *, async_update: bool = False, **kwargs: Any) -> list[Any]:
        """Returns the results so far, like RLlib's own; waits until each learner has room."""
        results: list[Any] = []
        while async_update and self._has_full_queue():
            ready = self._worker_manager.fetch_ready_async_reqs(timeout_seconds=WAIT_S)
            results += self._get_results(ready)
        results += super().update(async_update=async_update, **kwargs)
        return results

    def _has_full_queue(self) -> bool:
        """Whether the queue of a learner holds as many train batches as RLlib allows."""
        manager = self._worker_manager
        limit = manager._max_remote_requests_in_flight_per_actor
        return any(
            manager._remote_actor_states[index].get_num_in_flight_requests() >= limit
            for index in manager.healthy_actor_ids()
        )
