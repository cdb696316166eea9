"""A benchmark's child processes: watched, their memory measured, cleared away as a whole tree."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import psutil

from bench.cpu_time import cpu_seconds

SAMPLE_EVERY_S = 1.0
"""Pause between two looks at the process tree."""
POLL_S = 0.05
STOP_TIMEOUT_S = 60.0
"""How long a child may take to end after SIGINT before it is killed."""

ERROR_LINE = re.compile(r"(FAILED|payload|[\w.]*(Error|Exception|Interrupt)): ")


class MeasurementError(Exception):
    """A measurement that failed. Its text is one line: why."""


def unwind_on_signals() -> None:
    """Lets SIGTERM and SIGHUP end this process as Ctrl-C does: its children end first."""

    def unwind(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    for ending in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # As nohup sets it.
            signal.signal(ending, unwind)


def pss_bytes(rollup: str) -> int:
    """Returns the proportional set size that a /proc/PID/smaps_rollup file states, in bytes.

    A page that n processes share counts 1/n in each of them, so that a sum over
    processes counts it once (Linux, Documentation/filesystems/proc.rst).
    """
    for line in rollup.splitlines():
        name, _, value = line.partition(":")
        if name == "Pss":
            return int(value.split()[0]) * 1024
    return 0


def total_pss_bytes(pids: Iterable[int], proc: Path = Path("/proc")) -> int:
    """Returns the sum of the processes' PSS in bytes; an ended process counts as 0."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += pss_bytes((proc / str(pid) / "smaps_rollup").read_text())
    return total


class Child:
    """A command in a session of its own: a Ctrl-C at the terminal does not reach it.

    At the end of its context it kills all that is left of the process tree, including
    processes whose parent has died before them (Ray's daemons).
    """

    def __init__(self, command: list[str], log: Path, measure_memory: bool = False) -> None:
        """Starts the command; the output of its whole tree goes to `log`.

        Without `measure_memory`, `peak_memory_bytes` stays 0: scanning a tree of 3 GB takes 0.07 s
        of a core, too much during a measurement of speed.
        """
        self.started = time.monotonic()
        self.log = log
        self.peak_memory_bytes = 0
        """Peak PSS of the tree, sampled once a second while waiting."""
        self._measure_memory = measure_memory
        with log.open("a") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._root = psutil.Process(self._process.pid)
        self._tree = [self._root]
        self._sampled = 0.0

    def __enter__(self) -> Child:
        return self

    def __exit__(self, _: object, error: object, __: object) -> None:
        try:
            # After an error or Ctrl-C its last checkpoint is of no use.
            if error is None:
                self.interrupt()
        finally:
            self._look_at_tree()
            for process in self._tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.wait()
            psutil.wait_procs(self._tree, timeout=5)

    @property
    def seconds(self) -> float:
        """Seconds since the command was given."""
        return time.monotonic() - self.started

    def cpu_seconds(self) -> dict[str, float]:
        """Returns the CPU seconds of its tree so far, by kind of thread."""
        self._look_at_tree()
        return cpu_seconds(self._process.pid, self._tree)

    @property
    def exit_code(self) -> int | None:
        """The child's exit code; None while it runs."""
        return self._process.poll()

    def wait_for(self, condition: Callable[[], Any], timeout_s: float) -> None:
        """Waits for a condition; measures memory meanwhile.

        Raises MeasurementError if the child ends before, or if it takes longer than `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self.exit_code is not None:
                # Its last action may have met the condition.
                if condition():
                    return
                self.fail()
            if time.monotonic() > deadline:
                raise MeasurementError(f"nothing after {timeout_s:.0f} s; see {self.log}")
            if time.monotonic() - self._sampled >= SAMPLE_EVERY_S:
                self._sampled = time.monotonic()
                self._look_at_tree()
                if self._measure_memory:
                    memory = total_pss_bytes(process.pid for process in self._tree)
                    self.peak_memory_bytes = max(self.peak_memory_bytes, memory)
            time.sleep(POLL_S)

    def wait(self, timeout_s: float) -> int:
        """Waits until it ends, at most `timeout_s`; returns its exit code."""
        self.wait_for(lambda: self.exit_code is not None, timeout_s)
        return self._process.returncode

    def fail(self) -> NoReturn:
        """Raises MeasurementError with the reason that an ended child has logged."""
        with self.log.open(errors="replace") as log:
            log.seek(self._log_start)
            why = error_in(log.read())
        raise MeasurementError(f"ended with exit code {self.exit_code}: {why}")

    def interrupt(self) -> None:
        """Sends Ctrl-C to the child itself and waits until it has ended."""
        if self.exit_code is None:
            self._process.send_signal(signal.SIGINT)
            with contextlib.suppress(MeasurementError):
                self.wait(STOP_TIMEOUT_S)

    def _look_at_tree(self) -> None:
        """Adds new descendants; keeps known ones, which are not found once their parent is gone."""
        tree = [process for process in self._tree if process.is_running()]
        with contextlib.suppress(psutil.NoSuchProcess):
            tree += self._root.children(recursive=True)
        self._tree = list(dict.fromkeys(tree))


def error_in(output: str) -> str:
    """Returns the line of a failed child's output that most likely says why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if ERROR_LINE.match(line)]
    return (errors or lines or ["no output"])[-1]


def thread_cpu_s(name: str) -> float:
    """Returns the CPU seconds of this process's threads with a name."""
    idents = [thread.ident for thread in threading.enumerate() if thread.name == name]
    clock_of = time.pthread_getcpuclockid  # type: ignore[attr-defined]  # Not on macOS.
    return sum(time.clock_gettime(clock_of(ident)) for ident in idents if ident is not None)
