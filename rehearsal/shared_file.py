"""Files that several processes write in turn, and the lock of the one rehearsal that runs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from rehearsal.host_paths import LOCK

Content = TypeVar("Content")
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Waits until no other process or thread holds the lock of this file."""
    with file.with_name(f".{file.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read(file: Path, kind: type[Content]) -> Content:
    """Returns the dataclass in a JSON file; one with its defaults without a file."""
    if not file.exists():
        return kind()
    content: Content = _adapter(kind).validate_json(file.read_bytes())
    return content


def write(file: Path, content: object) -> None:
    """Writes a dataclass as JSON; the caller holds the lock."""
    replace(file, _adapter(type(content)).dump_json(content, indent=1).decode())


@contextmanager
def changed(file: Path, kind: type[Content]) -> Iterator[Content]:
    """Yields the dataclass in a JSON file, and writes it back; not after an exception."""
    with locked(file):
        content = read(file, kind)
        yield content
        write(file, content)


def replace(file: Path, text: str) -> None:
    """Replaces a file by a rename, so that nobody reads half of it; the caller holds the lock.

    Only its owner can read it.
    """
    aside = file.with_name(f".{file.name}.new")
    aside.unlink(missing_ok=True)
    aside.touch(0o600)
    aside.write_text(text)
    aside.replace(file)


class RehearsalRunningError(Exception):
    """Another rehearsal is running; the message has its process id."""


@contextmanager
def rehearsal_lock(path: Path = LOCK) -> Iterator[None]:
    """Holds the lock of the process that changes this machine; the kernel releases it at its end.

    Rehearsals share addresses, bridges and the base image, so only one can run at a time.
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
