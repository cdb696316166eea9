"""Ends a run from outside its loop: signals, a dead learner thread, a hang."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from payload.algorithms.algorithm_config import EVALUATION_AT_MOST_S
from payload.errors import first_line
from payload.experiment.settings_of_every_algorithm import AlgorithmSettings
from payload.impala.learner_errors import is_learner_thread

STALLED_AFTER_S = 300.0
"""After this time without an iteration, training counts as hung, not slow."""
STUCK_AFTER_S = 2.0
"""How long the main thread may take to notice a failure."""
SAME_REQUEST_S = 0.5
"""`timeout` sends a signal twice; a terminal and `timeout` together send Ctrl-C three times."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals with which a user, a terminal or a system ends a process."""


def iteration_limit_s(settings: AlgorithmSettings, iteration: int) -> float:
    """Returns how many seconds an iteration may take."""
    interval = settings.evaluation_interval
    evaluates = interval is not None and iteration % interval == 0
    return STALLED_AFTER_S + (EVALUATION_AT_MOST_S if evaluates else 0.0)


class TrainingStalledError(Exception):
    """Training hangs, or its learner thread died."""


class Interruption:
    """Watches over a run.

    The first Ctrl-C, SIGTERM or SIGHUP lets the iteration end, so that a checkpoint is
    written; a second one stops at once, wherever the run is. An ignored SIGHUP, as under nohup,
    stays ignored.
    """

    def __init__(
        self, on_stuck: Callable[[str], None], signals: Sequence[signal.Signals] = SIGNALS
    ) -> None:
        """
        Args:
            on_stuck: Ends the process for this reason. It is called in the thread of the failure
                if the main thread is inside one of Ray's calls that no signal interrupts.
            signals: Those that end the run; none in a process that another one ends.
        """
        self._signals = signals
        self._on_stuck = on_stuck
        self._heard = threading.Event()
        self._abandoned = False
        self.requested = False
        self.failure: str | None = None
        self.signal_name = ""
        self.exit_code = 1
        self._requested_at = 0.0
        self._watching = False
        self._old: dict[int, Any] = {}
        self._hook = threading.excepthook

    def __enter__(self) -> Interruption:
        for number in self._signals:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._old[number] = signal.signal(number, self._on_signal)
        self._old[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._on_failure)
        threading.excepthook = self._on_thread_error
        return self

    def __exit__(self, *_: object) -> None:
        threading.excepthook = self._hook
        for number, handler in self._old.items():
            signal.signal(number, handler)

    @contextmanager
    def watch(self, limit_s: float = STALLED_AFTER_S) -> Iterator[None]:
        """Raises TrainingStalledError inside after a failure, or after `limit_s`."""
        timer = threading.Timer(limit_s, self.fail, [f"no progress for {limit_s:.0f} s"])
        timer.daemon = True
        timer.start()
        self._watching = True
        try:
            if self.failure is not None:
                raise TrainingStalledError(self.failure)
            yield
        finally:
            self._watching = False
            timer.cancel()

    def fail(self, reason: str) -> None:
        """Ends the run with a failure; may be called by any thread but the main one."""
        if self.failure is not None:
            return
        self.failure = reason
        # To the main thread: a signal to another thread would not end a wait of the main one.
        main_thread = threading.main_thread().ident
        assert main_thread is not None  # It has started.
        signal.pthread_kill(main_thread, signal.SIGUSR1)
        if not self._heard.wait(STUCK_AFTER_S):
            self._abandoned = True
            self._on_stuck(reason)

    def _on_signal(self, number: int, frame: Any) -> None:
        now = time.monotonic()
        if not self.requested:
            self.requested, self._requested_at = True, now
            self.signal_name = signal.Signals(number).name
            self.exit_code = 128 + number
        elif now - self._requested_at > SAME_REQUEST_S:
            raise KeyboardInterrupt

    def _on_thread_error(self, args: Any) -> None:
        self._hook(args)
        # Without one of them, algorithm.train() would never return.
        if is_learner_thread(args.thread):
            self.fail(f"the learner failed: {first_line(args.exc_value or args.exc_type())}")

    def _on_failure(self, number: int, frame: Any) -> None:
        self._heard.set()
        if self._abandoned:
            threading.Event().wait()  # The thread of the failure ends the process.
        if self._watching:
            raise TrainingStalledError(self.failure)
