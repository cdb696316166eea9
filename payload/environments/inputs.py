"""Copies folders that an experiment names; those of `inputs` become copies without a write bit.

Neither Python nor native code of an ordinary user can write to them. Root ignores mode bits, but
changes only the copy, never the user's own folder.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from payload.errors import UserError
from payload.experiment.travelling import travelling

WRITE_BITS = 0o222


def input_variables(inputs: dict[str, str], copies: Path) -> dict[str, str]:
    """Returns the variables that tell an environment where its inputs are.

    Args:
        inputs: Folders by name.
        copies: A folder that keeps their copies, for later processes too.

    Raises:
        UserError: A folder cannot be copied.
    """
    return {
        f"VOLLEY_INPUT_{name.upper()}": str(_read_only_copy(Path(folder), copies))
        for name, folder in inputs.items()
    }


def remove_copies(copies: Path) -> None:
    """Removes a folder of copies, or one copy, if it is there."""
    for parent, _, _ in os.walk(copies):
        with suppress(OSError):  # Another process removes it too.
            os.chmod(parent, 0o700)
    shutil.rmtree(copies, ignore_errors=True)


def _read_only_copy(folder: Path, copies: Path) -> Path:
    """Returns a copy of a folder; reuses a copy that was made of the same files."""
    final = copies.absolute() / _key(folder)
    # Only a complete copy has this name.
    if not final.is_dir():
        try:
            copies.mkdir(parents=True, exist_ok=True)
            with file_lock(copies / f".{final.name}.lock"):
                if not final.is_dir():
                    _make_copy(folder, final)
        except OSError as error:
            raise UserError(f"{folder} cannot be copied to {copies}: {error.strerror}") from None
    return final


def _make_copy(folder: Path, final: Path) -> None:
    aside = final.with_name(f".{final.name}")
    remove_copies(aside)  # Left by a killed process.
    try:
        copy_folder(folder, aside, outside=True)
        for parent, _, files in os.walk(aside):
            for path in (Path(parent), *(Path(parent, name) for name in files)):
                path.chmod(path.stat().st_mode & ~WRITE_BITS)
        aside.rename(final)
    finally:
        remove_copies(aside)


def _key(folder: Path) -> str:
    """Returns a name for a folder and its contents: each file's path, size and modification time.

    Like rsync, it does not notice other content of the same size and time.
    """
    digest = hashlib.sha256(os.fsencode(folder.absolute()))
    for below, path in travelling(folder, outside=True).files.items():
        stat = path.stat()
        digest.update(os.fsencode(below))
        digest.update(f"\0{stat.st_size} {stat.st_mtime_ns}\0".encode())
    return f"{folder.name}-{digest.hexdigest()[:12]}"


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Waits while another process holds the lock, for example to copy the same folder."""
    with path.open("a") as lock:
        # A file system without locks must not prevent training.
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def copy_folder(folder: Path, place: Path, git: bool = False, outside: bool = False) -> None:
    """Copies what travels of a folder to `place`, which may have other files already.

    Args:
        git, outside: As `travelling` has them.

    Raises:
        UserError: A file cannot be copied; the message says why.
    """
    path = folder
    try:
        place.mkdir(parents=True, exist_ok=True)
        for below, path in travelling(folder, git, outside).files.items():
            copy = place / below
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            shutil.copystat(path, copy)
    except OSError as error:
        raise UserError(f"{path} cannot be copied: {error.strerror or error}") from None
