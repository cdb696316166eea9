"""A file that holds one integer, and that another process replaces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

LONGEST = 20
"""Characters shown of text that is not an integer."""


class NumberFile:
    """The last number that a file held, at least 1."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        """
        Args:
            say: Shows a person a line.
        """
        self._path, self._say = path, say
        self._number: int | None = None
        self._seen: tuple[int, int, int] | None = None
        self._problem = ""

    def read(self) -> int | None:
        """Returns the number, None until there was one; the file is read only if it has changed.

        If the file is missing or holds something else, a line says so once and the number stays.
        """
        text = ""
        try:
            stat = self._path.stat()
            seen = stat.st_mtime_ns, stat.st_size, stat.st_ino
            if seen != self._seen:
                text = self._path.read_text()
                self._seen = seen
                self._number, self._problem = max(1, int(text)), ""
        except OSError as error:
            self._seen = None
            self._say_problem(error.strerror or str(error))
        except ValueError:
            self._say_problem(f"{text.strip()[:LONGEST]!r} is not an integer")
        return self._number

    def _say_problem(self, problem: str) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        there = "as they are" if self._number is None else f"at {self._number}"
        self._say(f"--env-runners {self._path}: {problem}; the env runners stay {there}")
