"""Files below a folder, by paths that somebody else has chosen or could have changed.

Each folder on the way is opened from the one above it, and none through a link (openat(2) with
O_NOFOLLOW): whatever a link there names, nothing outside the folder is read or written.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO

from .files import open_file

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class Below:
    """An open folder. Its own path may have links; the paths below it may not.

    Every method raises OSError if a folder on the way is a link.
    """

    def __init__(self, folder: Path) -> None:
        self._root = os.open(folder, FOLDER)

    def __enter__(self) -> "Below":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def status(self, path: PurePosixPath) -> os.stat_result:
        """Returns the state of a file, or of a link itself."""
        with self._parent(path) as parent:
            return os.stat(path.name, dir_fd=parent, follow_symlinks=False)

    def read_link(self, path: PurePosixPath) -> str:
        with self._parent(path) as parent:
            return os.readlink(path.name, dir_fd=parent)

    def open(self, path: PurePosixPath) -> IO[bytes]:
        """Opens a regular file; raises OSError for anything else."""
        with self._parent(path) as parent:
            return open_file(path.name, parent)

    @contextmanager
    def writing(self, path: PurePosixPath, mtime_ns: int, mode: int = 0o666) -> Iterator[IO[bytes]]:
        """Writes a file aside; it gets its name, and this modification time, when it is whole."""
        aside = f"{path.name}.part"
        with self._parent(path, make=True) as parent:
            with os.fdopen(os.open(aside, WRITE, mode, dir_fd=parent), "wb") as file:
                yield file
            os.utime(aside, ns=(mtime_ns, mtime_ns), dir_fd=parent, follow_symlinks=False)
            os.replace(aside, path.name, src_dir_fd=parent, dst_dir_fd=parent)

    def replace_link(self, path: PurePosixPath, target: str) -> None:
        """Makes a link, or replaces one."""
        aside = f".{path.name}.new"
        with self._parent(path, make=True) as parent:
            with suppress(FileNotFoundError):
                os.unlink(aside, dir_fd=parent)
            os.symlink(target, aside, dir_fd=parent)
            os.replace(aside, path.name, src_dir_fd=parent, dst_dir_fd=parent)

    def move(self, path: PurePosixPath, to: PurePosixPath) -> None:
        """Renames a file; replaces the one that has the new name."""
        with self._parent(path) as old, self._parent(to, make=True) as new:
            os.replace(path.name, to.name, src_dir_fd=old, dst_dir_fd=new)

    @contextmanager
    def _parent(self, path: PurePosixPath, make: bool = False) -> Iterator[int]:
        """Opens the folder of a file, and makes it if asked."""
        folder = os.dup(self._root)
        try:
            for depth, name in enumerate(path.parent.parts):
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
                try:
                    child = os.open(name, FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                except OSError as error:
                    # Linux says ENOTDIR of a link, macOS ELOOP.
                    number = errno.ENOTDIR if error.errno == errno.ELOOP else error.errno
                    place = PurePosixPath(*path.parts[: depth + 1])
                    raise OSError(number, error.strerror, str(place)) from None
                os.close(folder)
                folder = child
            yield folder
        finally:
            os.close(folder)
