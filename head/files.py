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


def open_file(path: Path | str, folder: int | None = None) -> BinaryIO:
    """Opens a file for reading.

    Args:
        folder: The descriptor of an open folder that contains it; then no link is followed.

    Raises:
        OSError: It is missing or not a regular file: a pipe would block its reader.
    """
    follow = 0 if folder is None else os.O_NOFOLLOW
    # Without O_NONBLOCK, opening a pipe waits for its writer.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | follow, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "is not a regular file", str(path))
    return os.fdopen(handle, "rb")


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a file; an empty one if the file is missing or damaged."""
    try:
        with open_file(path) as file:
            content = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def update_with(digest: Any, path: Path) -> None:
    """Adds a file to a hash of hashlib, without having all of it in memory."""
    with path.open("rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)


def files_of_runs(folder: Path) -> Iterator[Path]:
    """Yields files and links; names that start with a dot belong to files being written.

    It skips sockets and pipes, which have no content or block their reader.
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
