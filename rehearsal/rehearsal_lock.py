"""A lock for one rehearsal at a time: addresses, bridges and the base image are shared."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rehearsal.paths import LOCK


class RehearsalRunningError(Exception):
    """Another rehearsal is running; the message has its process id."""


@contextmanager
def rehearsal_lock(path: Path = LOCK) -> Iterator[None]:
    """Holds the lock of the process that changes this machine; the kernel releases it at its end.

    Raises:
        RehearsalRunningError: Another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = path.read_text() or "unknown"
            raise RehearsalRunningError(f"another rehearsal is running: process {pid}") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
