"""Runs a script in a process of its own, and says why it ended; nothing of it is left."""

import ctypes
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from payload.processes import kill
from payload.tracking.mlflow_run import Status

GRACE_S = 15.0
"""Time for a script to end after SIGTERM or Ctrl-C."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_CHILD_SUBREAPER = 36
VMSTAT = Path("/proc/vmstat")


@dataclass(frozen=True)
class End:
    """How a script ended."""

    status: Status
    reason: str
    exit_code: int
    """For this process: the script's own, or 128 and the number of a signal."""


def run(
    script: Sequence[str],
    environment: Mapping[str, str],
    limit_s: float | None = None,
    forward: bool = True,
) -> End:
    """Runs a script to its end, and ends all processes that it has started.

    Args:
        script: Its path and arguments.
        limit_s: Seconds after which it is ended.
        forward: Whether the script gets the signals of this process; Ray gives a job's signals to
            every process of the job itself.
    """
    before, kills_before = set(psutil.Process().children()), _kernel_kills()
    with (
        tempfile.TemporaryDirectory() as folder,
        _adopted_orphans(),
        _received_signals() as received,
    ):
        error = Path(folder, "error")
        command = [sys.executable, "-m", "payload.script", str(error), *script]
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        try:
            by_itself = _wait(process, limit_s, received, forward)
        finally:
            _kill_all([child for child in psutil.Process().children() if child not in before])
            process.wait()
        reason = error.read_text() if error.exists() else ""
    if received:
        number = signal.Signals(received[0])
        return End("KILLED", f"stopped by {number.name}", 128 + number)
    if not by_itself:
        return End("FAILED", f"max_run_duration_seconds: it ran longer than {limit_s:g}", 1)
    return _end(process.returncode, reason, _kernel_kills() > kills_before)


def _wait(
    process: subprocess.Popen[bytes], limit_s: float | None, received: list[int], forward: bool
) -> bool:
    """Waits for the script; returns whether it ended by itself.

    After a signal or the limit it has GRACE_S to end; after a second signal none.
    """
    limit = math.inf if limit_s is None else time.monotonic() + limit_s
    while not received and time.monotonic() < limit:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
            return True
    if forward or not received:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, received[0] if received else signal.SIGTERM)
    end = time.monotonic() + GRACE_S
    while process.poll() is None and time.monotonic() < end and len(received) < 2:
        time.sleep(0.1)
    return False


def _kill_all(processes: list[psutil.Process]) -> None:
    below = []
    for process in processes:
        with suppress(psutil.Error):
            below += process.children(recursive=True)
    kill([*processes, *below])
    psutil.wait_procs([*processes, *below], GRACE_S)


def _end(returncode: int, error: str, kernel_killed: bool) -> End:
    if returncode == 0:
        return End("FINISHED", "the script has ended", 0)
    if returncode > 0:
        return End("FAILED", error or f"exit code {returncode}", returncode)
    name = signal.Signals(-returncode).name
    if -returncode == signal.SIGKILL and kernel_killed:
        name = "the kernel: the machine has no memory left"
    return End("FAILED", f"killed by {name}", 128 - returncode)


@contextmanager
def _received_signals() -> Iterator[list[int]]:
    """Collects the signals that this process receives; an ignored one, as under nohup, stays so."""
    received: list[int] = []
    old = {
        number: signal.signal(number, lambda number, _: received.append(number))
        for number in SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield received
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


@contextmanager
def _adopted_orphans() -> Iterator[None]:
    """Makes this process the parent of orphans below it, so that it can end them (Linux)."""
    if sys.platform != "linux":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _kernel_kills() -> int:
    """Returns how many processes this machine's kernel has killed for their memory (Linux)."""
    with suppress(OSError):
        counters = dict(line.split() for line in VMSTAT.read_text().splitlines())
        return int(counters.get("oom_kill", 0))
    return 0
