"""Small files that several processes of the head share."""

import errno
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO


def open_file(path: Path) -> BinaryIO:
    """Opens a file for reading.

    Raises:
        OSError: It is missing, or no regular file: a pipe would block its reader for ever.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a file", str(path))
    return os.fdopen(handle, "rb")


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a file; an empty one if the file is missing or damaged."""
    try:
        with open_file(path) as file:
            content = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def files_of_runs(folder: Path) -> Iterator[Path]:
    """Yields files and links; names that start with a dot belong to files being written.

    A socket or a pipe of an experiment has nothing to read, or blocks its reader for ever.
    """
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links = [name for name in folders if Path(parent, name).is_symlink()]
        paths = (Path(parent, name) for name in sorted(names) + links if not name.startswith("."))
        yield from (path for path in paths if path.is_symlink() or path.is_file())


def replace_json(path: Path, values: Mapping[str, Any], mode: int = 0o644) -> None:
    replace(path, json.dumps(values).encode(), mode)


def replace(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Replaces a file atomically: readers see the old content or the new, also after a power cut.

    The temporary file has a new name each time: root writes into folders of the user ray, where an
    experiment's code could have placed a link under a name that it can guess.
    """
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode)
        os.replace(aside, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(aside)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Waits until the disk has a file, or the names of a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
