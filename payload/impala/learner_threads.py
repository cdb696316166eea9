"""The threads of IMPALA's learner, by RLlib's names."""

from __future__ import annotations

import threading

LEARNER_THREADS = ("_LearnerThread", "_GPULoaderThread")


def is_learner_thread(thread: threading.Thread | None) -> bool:
    """Whether a thread is one of IMPALA's learner."""
    return thread is not None and thread.name in LEARNER_THREADS
