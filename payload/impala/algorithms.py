"""IMPALA and APPO as volley runs them."""

from __future__ import annotations

import time
from typing import Any

from ray.rllib.algorithms.appo import APPO
from ray.rllib.algorithms.impala import IMPALA

from payload.impala.learner_group import PatientLearnerGroup

POLL_S = 0.1


class VolleyIMPALA(IMPALA):
    """RLlib's, which sends every train batch to every learner."""

    def setup(self, config: Any) -> None:
        super().setup(config)
        # AlgorithmConfig.build_learner_group has no setting for the class.
        self.learner_group.__class__ = PatientLearnerGroup


class VolleyAPPO(VolleyIMPALA, APPO):
    """RLlib's, which sends every train batch to every learner."""


class _RemoteSampling(VolleyIMPALA):
    """Waits while every env runner is down; RLlib's own would let the driver sample.

    `run_under` gives a window to env runners alone.
    """

    def _sample_and_get_connector_states(self) -> Any:
        group = self.env_runner_group
        if group.num_remote_env_runners() > 0 and group.num_healthy_remote_workers() == 0:
            time.sleep(POLL_S)
            return [], [], [], set()
        return super()._sample_and_get_connector_states()


class RemotelySampledIMPALA(_RemoteSampling):
    """IMPALA whose driver never samples."""


class RemotelySampledAPPO(_RemoteSampling, VolleyAPPO):
    """APPO whose driver never samples."""
