"""Learners in processes of their own, each of which gets every train batch that is its share."""

from __future__ import annotations

from typing import Any

from ray.rllib.core.learner.learner_group import LearnerGroup

WAIT_S = 0.01
"""Of one look at what learners have answered."""


class PatientLearnerGroup(LearnerGroup):
    """Waits for room where RLlib's own drops a train batch.

    RLlib's also gives it to those of several learners that have room. Learners average each
    gradient step, so one that skips a batch averages its next one with another's last one.
    """

    def update(self, *, async_update: bool = False, **kwargs: Any) -> list[Any]:
        """Returns the results that have come, as RLlib's own; waits until each learner has room."""
        results: list[Any] = []
        while async_update and self._has_full_queue():
            ready = self._worker_manager.fetch_ready_async_reqs(timeout_seconds=WAIT_S)
            results += self._get_results(ready)
        results += super().update(async_update=async_update, **kwargs)
        return results

    def _has_full_queue(self) -> bool:
        """Whether a learner has as many train batches as RLlib lets wait for it."""
        manager = self._worker_manager
        limit = manager._max_remote_requests_in_flight_per_actor
        return any(
            manager._remote_actor_states[index].get_num_in_flight_requests() >= limit
            for index in manager.healthy_actor_ids()
        )
