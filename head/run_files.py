"""Reading the runs, which an experiment's code writes, also while they are read.

Each file is opened without following links, below the descriptor of its folder, and must be a
regular file then: a path that becomes a link or a pipe meanwhile leads nowhere else and blocks
nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .files import open_file

FILE_S = 5 * 60.0
"""Time limit for one file, so that a huge one does not block the others."""
MAX_NAME = 1024
"""Characters of a blob's name: what is deeper cannot be saved."""


class Prefix:
    """A file up to the length that it had when it was opened: a log grows meanwhile."""

    def __init__(self, file: BinaryIO, size: int, path: Path) -> None:
        self._file, self.size, self._path = file, size, path
        self._end = time.monotonic() + FILE_S

    def seek(self, position: int) -> None:
        self._file.seek(position)

    def read(self, size: int = -1) -> bytes:
        """Returns the next `size` bytes, or those up to the length.

        Raises:
            OSError: The file has become shorter, or the time is over.
        """
        left = self.size - self._file.tell()
        size = left if size < 0 else min(size, left)
        content = self._file.read(size)
        if len(content) < size:
            raise OSError(f"{self._path} became shorter while it was read")
        if time.monotonic() > self._end:
            raise TimeoutError(f"{self._path} is not saved within {FILE_S:.0f} s")
        return content


def entries(runs: Path, problem: Callable[[OSError], None]) -> Iterator[tuple[Path, int]]:
    """Yields each entry with the descriptor of its folder, valid until the next one.

    Names that start with a dot belong to files being written.
    """
    if not runs.is_dir():
        return
    for parent, folders, names, descriptor in os.fwalk(runs, onerror=problem):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for name in sorted(names) + links:
            if not name.startswith("."):
                yield Path(parent, name), descriptor
        if len(parent) > MAX_NAME:
            folders.clear()


@contextmanager
def opened(name: str, folder: int) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """Opens a regular file below a folder's descriptor; raises OSError for anything else."""
    with open_file(name, folder) as file:
        yield file, os.fstat(file.fileno())


def is_plain(target: str) -> bool:
    """Returns whether a link leads to another name in its own folder."""
    return target not in ("", ".", "..") and "/" not in target
