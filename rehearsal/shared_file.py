"""Files that several processes write in turn, and that are never read half written."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Waits until no other process or thread holds the lock of this file."""
    with file.with_name(f".{file.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def replace(file: Path, text: str) -> None:
    """Replaces a file, readable by its owner only, by a rename; the caller holds the lock."""
    aside = file.with_name(f".{file.name}.new")
    aside.unlink(missing_ok=True)
    aside.touch(0o600)
    aside.write_text(text)
    aside.replace(file)
