"""One rehearsal at a time on a machine: addresses, bridges and the base image are shared."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import IO

from tests.rehearsal import place


class RehearsalRunningError(Exception):
    """Another rehearsal is running; the message has its process id."""


class RehearsalLock:
    """Held by whoever changes this machine; the kernel lets go of it with the process.

    Raises:
        RehearsalRunningError: On entering, another process holds it.
    """

    def __init__(self, path: Path = place.LOCK) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def __enter__(self) -> RehearsalLock:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = open(self.path, "a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise RehearsalRunningError(
                f"another rehearsal is running: process {_written(self.path)}"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()


def holder(path: Path = place.LOCK) -> str | None:
    """Returns the process id of the rehearsal that runs, `unknown` at its very start, or None."""
    if not path.exists():
        return None
    with open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _written(path)
    return None


def _written(path: Path) -> str:
    return path.read_text().strip() or "unknown"
