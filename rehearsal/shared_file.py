"""Files that several processes write, one at a time, and that are never read half written."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Waits until no other process or thread is in here with the same file."""
    with file.with_name(f".{file.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def replace(file: Path, text: str) -> None:
    """Writes a file aside, for its owner's eyes only, and renames it; call it locked."""
    aside = file.with_name(f".{file.name}.new")
    aside.unlink(missing_ok=True)
    aside.touch(0o600)
    aside.write_text(text)
    aside.replace(file)
