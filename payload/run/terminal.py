"""A run's terminal, which shows only the run's own lines: all other output goes to the log."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TextIO, cast


@contextmanager
def terminal(log: Path) -> Iterator[TextIO]:
    """Sends all other output of this process to the log; yields the terminal."""
    descriptors = redirect_output(log)
    try:
        with redirect_stdout(LogStream(1)), redirect_stderr(LogStream(2)):
            yield cast("TextIO", LogStream(descriptors[0]))
    finally:
        restore_output(descriptors)


def redirect_output(log: Path) -> tuple[int, int]:
    """Sends file descriptors 1 and 2 to `log`; returns descriptors of the old ones.

    Ray's C++ core and its worker logs write to the descriptors, past sys.stdout.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    old = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor in (1, 2):
        os.dup2(target, descriptor)
    os.close(target)
    return old


def restore_output(old: tuple[int, int]) -> None:
    """Reverts `redirect_output`."""
    sys.stdout.flush()
    sys.stderr.flush()
    for descriptor, saved in zip((1, 2), old, strict=True):
        os.dup2(saved, descriptor)
        os.close(saved)


class LogStream(io.TextIOBase):
    """A stream that drops lines that it cannot write, instead of ending the run.

    A disk may be full, a terminal closed, a pipe without a reader.
    """

    encoding = "utf-8"

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, text: str) -> int:
        with suppress(OSError):
            os.write(self._descriptor, text.encode(errors="replace"))
        return len(text)

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)
