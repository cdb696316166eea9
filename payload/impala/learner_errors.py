"""Errors of a learner that RLlib drops: a thread that died, a checkpoint that failed."""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from typing import Any

from ray.rllib.algorithms.appo.torch.appo_torch_learner import APPOTorchLearner
from ray.rllib.algorithms.impala.torch.impala_torch_learner import IMPALATorchLearner
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.learner.training_data import TrainingData

logger = logging.getLogger(__name__)
LEARNER_THREADS = ("_LearnerThread", "_GPULoaderThread")


class CheckpointErrors(TorchLearner):
    """A learner that keeps the error of a checkpoint instead of raising it.

    RLlib's driver would mark the learner as unhealthy and continue without a learner.
    """

    checkpoint_error: Exception | None = None
    """The error of the last save or restore in a learner's process; CheckpointStore raises it."""

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


class ThreadWatch(CheckpointErrors):
    """A learner whose `update` raises the error that has ended one of its threads.

    RLlib's learner waits for its threads indefinitely. In a process of its own, nothing notices
    that: the driver drops what it cannot send, and env runners keep sampling.
    """

    def build(self) -> None:
        super().build()
        self._failure: BaseException | None = None
        if self.config.num_learners > 0:
            # In the driver itself, Interruption watches over the learner's threads.
            threading.excepthook = self._on_thread_error

    def update(self, *, training_data: TrainingData, **kwargs: Any) -> Any:
        training_data.solve_refs()
        if training_data.episodes == []:
            # The env runner is lost, and with it what it had sampled.
            return {}
        # _on_thread_error ends a waiting update; later updates must not start to wait.
        result = (
            super().update(training_data=training_data, **kwargs) if self._failure is None else None
        )
        if self._failure is not None:
            raise self._failure
        return result

    def _on_thread_error(self, args: threading.ExceptHookArgs) -> None:
        threading.__excepthook__(args)
        if not is_learner_thread(args.thread):
            return
        self._failure = self._failure or args.exc_value
        # An update may wait for room in the queue, or for the end of a batch.
        with suppress(Empty):
            self._learner_thread_in_queue.get_nowait()
        self._agg_event.set()


class WatchedIMPALALearner(ThreadWatch, IMPALATorchLearner):
    """RLlib's own, for environments other than Atari games."""


class WatchedAPPOLearner(ThreadWatch, APPOTorchLearner):
    """RLlib's own, for environments other than Atari games."""


def is_learner_thread(thread: threading.Thread | None) -> bool:
    return thread is not None and thread.name in LEARNER_THREADS
