"""What ends a run from outside its loop: signals, a dead learner thread, a hang."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from payload.errors import first_line

STALLED_AFTER_S = 300.0
"""No iteration for so long means that training hangs, not that it is slow."""
LEARNER_THREADS = ("_LearnerThread", "_GPULoaderThread")
"""RLlib's names for the threads of IMPALA's learner."""


class TrainingStalledError(Exception):
    """Training hangs, or its learner thread died."""


class Interruption:
    """Watches over a run.

    The first Ctrl-C (or SIGTERM) lets the iteration end, so that a checkpoint is
    written; the second one stops at once.
    """

    def __init__(self) -> None:
        self.requested = False
        self.failure: str | None = None
        self.signal_name = ""
        self.exit_code = 1
        self._old: dict[int, Any] = {}
        self._hook = threading.excepthook

    def __enter__(self) -> Interruption:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._old[number] = signal.signal(number, self._on_signal)
        self._old[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._on_failure)
        threading.excepthook = self._on_thread_error
        return self

    def __exit__(self, *_: object) -> None:
        threading.excepthook = self._hook
        for number, handler in self._old.items():
            signal.signal(number, handler)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Fails the run if what is inside takes longer than STALLED_AFTER_S."""
        timer = threading.Timer(
            STALLED_AFTER_S, self._fail, [f"no progress for {STALLED_AFTER_S:.0f} s"]
        )
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _on_signal(self, number: int, frame: Any) -> None:
        self.signal_name = signal.Signals(number).name
        self.exit_code = 128 + number
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True

    def _on_thread_error(self, args: Any) -> None:
        self._hook(args)
        # Without one of them, algorithm.train() would wait for ever.
        if is_learners(args.thread):
            self._fail(f"the learner failed: {first_line(args.exc_value or args.exc_type())}")

    def _fail(self, reason: str) -> None:
        if self.failure is not None:
            return
        self.failure = reason
        os.kill(os.getpid(), signal.SIGUSR1)

    def _on_failure(self, number: int, frame: Any) -> None:
        raise TrainingStalledError(self.failure)


def is_learners(thread: threading.Thread | None) -> bool:
    """Whether a thread is one of those of IMPALA's learner."""
    return thread is not None and thread.name in LEARNER_THREADS
