"""The folder in which a Ray on this machine keeps its sockets and logs while its driver runs.

Ray itself leaves one in /tmp/ray for every start. The driver can remove a folder of its own without
checking for files of other programs.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

PREFIX = "volley-"
LOCK = ".driver.lock"
MAX_PARENT = 22
"""Maximum of characters; with more, the paths of Ray's sockets are too long for macOS."""


@dataclass
class RayFolder:
    """A folder of this process, and the lock held on it."""

    path: Path
    lock: TextIO


_own: list[RayFolder] = []


def make_ray_folder() -> Path:
    """Returns a new folder for Ray's files, or those of workers; removes dead drivers' folders.

    If the process exits without `remove_ray_folder`, Ray is shut down and the folder removed.
    """
    remove_dead_folders()
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_parent()))
    lock = (path / LOCK).open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not _own:
        atexit.register(_leave_ray)
    _own.append(RayFolder(path, lock))
    return path


def remove_ray_folder() -> None:
    """Removes this process's folder, after the end of its Ray."""
    while _own:
        folder = _own.pop()
        # Twice: a process of Ray may meanwhile write the last line of a log.
        for _ in range(2):
            shutil.rmtree(folder.path, ignore_errors=True)
        folder.lock.close()


def remove_dead_folders() -> None:
    """Removes the folders whose driver was killed."""
    for lock in _parent().glob(f"{PREFIX}*/{LOCK}"):
        _remove_if_dead(lock)


def _parent() -> Path:
    from ray._common.utils import get_default_system_temp_dir

    # RAY_TMPDIR or TMPDIR, whatever they hold: batch systems set them.
    parent = Path(get_default_system_temp_dir())
    fits = parent.is_absolute() and len(str(parent)) <= MAX_PARENT
    return parent if fits and os.access(parent, os.W_OK | os.X_OK) else Path("/tmp")


def _remove_if_dead(lock: Path) -> None:
    with suppress(OSError):
        if lock.parent.is_symlink() or lock.parent.lstat().st_uid != os.getuid():
            return
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


def _leave_ray() -> None:
    if not _own:
        return
    import ray

    ray.shutdown()
    remove_ray_folder()
