"""IMPALA and APPO as volley runs them."""

from __future__ import annotations

import time
from typing import Any

from ray.rllib.algorithms.appo import APPO
from ray.rllib.algorithms.impala import IMPALA

from payload.impala.learner_group import PatientLearnerGroup

POLL_S = 0.1


class VolleyIMPALA(IMPALA):
    """RLlib's; sends every train batch to every learner, and its driver does not sample."""

    def setup(self, config: Any) -> None:
        super().setup(config)
        # AlgorithmConfig.build_learner_group has no setting for the class.
        self.learner_group.__class__ = PatientLearnerGroup

    def _sample_and_get_connector_states(self) -> Any:
        """Waits while every env runner is out of service; RLlib's driver would sample for them.

        The driver has no window (`run_under`), and a fault of its environment would end the run.
        """
        group = self.env_runner_group
        if group.num_remote_env_runners() > 0 and group.num_healthy_remote_workers() == 0:
            time.sleep(POLL_S)
            return [], [], [], set()
        return super()._sample_and_get_connector_states()


class VolleyAPPO(VolleyIMPALA, APPO):
    """The same of APPO."""
