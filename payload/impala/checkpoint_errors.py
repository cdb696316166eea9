"""Errors of a learner in another process that cannot save or restore, which RLlib drops."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ray.rllib.core.learner.torch.torch_learner import TorchLearner

logger = logging.getLogger(__name__)


class CheckpointErrors(TorchLearner):
    """A learner that keeps such an error instead of raising it.

    RLlib's driver would mark the learner as unhealthy and continue without a learner.
    """

    checkpoint_error: Exception | None = None
    """Of the last save or restore in a process of its own; CheckpointStore raises it."""

    def save_to_path(self, *args: Any, **kwargs: Any) -> Any:
        return self._keep_error(super().save_to_path, *args, **kwargs)

    def restore_from_path(self, *args: Any, **kwargs: Any) -> None:
        self._keep_error(super().restore_from_path, *args, **kwargs)

    def _keep_error(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.checkpoint_error = None
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if self.config.num_learners == 0:
                raise
            logger.exception("No checkpoint of this learner.")
            self.checkpoint_error = error
