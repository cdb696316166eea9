"""Marks of what is saved: a small file for each file of RUNS that is in Blob, by results.py.

Needs the standard library only.
"""

import os
from pathlib import Path

from .paths import IDENTITY, RUNS

MARKS = IDENTITY / "saved"
LOCK = IDENTITY
"""The folder is locked while results are saved, and while a folder of RUNS is taken away."""


def is_saved(path: Path) -> bool:
    """Whether Blob has a file of RUNS, or a link, as it is now."""
    mark = MARKS / path.relative_to(RUNS)
    saved = mark.read_text() if mark.is_file() else ""
    if path.is_symlink():
        return saved == os.readlink(path)
    return is_same(saved, path.stat())


def change_of(state: os.stat_result) -> str:
    """Returns a text that differs when a file has changed."""
    return f"{state.st_mtime_ns} {state.st_size}"


def is_same(saved: str, state: os.stat_result) -> bool:
    """Whether a file is as its mark says; of a log the mark says more."""
    return saved.split(" ")[:2] == change_of(state).split(" ")
