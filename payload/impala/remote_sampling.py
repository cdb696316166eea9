"""IMPALA and APPO whose driver cannot sample: `run_under` gives a window to env runners alone."""

from __future__ import annotations

import time
from typing import Any

from ray.rllib.algorithms.appo import APPO
from ray.rllib.algorithms.impala import IMPALA

POLL_S = 0.1


class _RemoteSampling(IMPALA):
    """Waits while every env runner is down; RLlib's own would let the driver sample."""

    def _sample_and_get_connector_states(self) -> Any:
        group = self.env_runner_group
        if group.num_remote_env_runners() > 0 and group.num_healthy_remote_workers() == 0:
            time.sleep(POLL_S)
            return [], [], [], set()
        return super()._sample_and_get_connector_states()


class RemotelySampledIMPALA(_RemoteSampling):
    """IMPALA whose driver never samples."""


class RemotelySampledAPPO(_RemoteSampling, APPO):
    """APPO whose driver never samples."""
