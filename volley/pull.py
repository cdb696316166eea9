"""`volley pull`: downloads the runs of an experiment and their checkpoints, new files only.

Files arrive in a folder beside their places. When all files of a manifest are there they are
renamed, so that a checkpoint is never incomplete; a broken download continues with the next pull.
"""

import argparse
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from head.below import Below
from payload.errors import UserError, printable
from volley.errors import refused
from volley.runs import Runs, RunsOfHead
from volley.source import Off, source, unread
from volley.tables import show

PARTIAL = PurePosixPath(".volley-partial")
"""No file of a manifest has a name that begins with a dot."""
ROUNDS = 5
"""A training keeps writing; files that it replaced since a manifest are requested again."""
CHUNK = 2**20
KEPT_FREE = 256 * 2**20
"""Bytes of the disk that a pull leaves to other programs."""
GROWTH = 64 * 2**20
"""Bytes by which logs may grow between the manifest and the answer."""


@dataclass(frozen=True)
class RemoteFile:
    path: PurePosixPath
    size: int
    mtime_ns: int
    link: str | None = None
    """The target, if it is a link."""


def pull(options: argparse.Namespace) -> int:
    """Downloads an experiment's folder; deletes nothing on this machine."""
    cluster = source(options)
    if isinstance(cluster, Off):
        try:
            answer = receive(cluster.results(), options.name, options.to)
        except UserError as error:
            raise unread(error, cluster) from None
        cluster.say()
    else:
        answer = receive(RunsOfHead(cluster), options.name, options.to)
    line = f"{answer['folder']}: {answer['files']} new files, {answer['bytes'] / 2**20:,.1f} MiB"
    show(options.as_json, answer, line)
    return 0


def receive(runs: Runs, name: str, to: Path | None = None) -> dict[str, Any]:
    """Downloads an experiment's runs to a folder, results/NAME by default.

    Returns:
        The folder, and the number and bytes of the new files.

    Raises:
        UserError: The folder cannot be written or has too little space, the head refuses, or the
            connection was lost.
    """
    folder = to or Path("results") / name
    listed = manifest(runs.listing(name))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with Below(folder) as below:
            received = _receive(runs, name, listed, folder, below)
    except NotADirectoryError as error:
        raise refused(
            f"--to {folder}: {error.filename}: is a link or a file here, and a folder on the head",
            f"remove it, or volley pull {name} --to OTHER",
        ) from None
    except OSError as error:
        raise UserError(f"--to {folder}: cannot be written: {error.strerror or error}") from None
    return {"name": name, "folder": str(folder), **received}


def manifest(answer: dict[str, Any]) -> list[RemoteFile]:
    """Returns the files of volley-head's manifest, and its links to a name in their own folder.

    Raises:
        UserError: A path is not one of a run's files.
    """
    try:
        files = [_remote_file(file) for file in answer["files"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise refused("the head's manifest cannot be read", "volley up, to update it") from None
    for file in files:
        if not _is_of_a_run(file.path):
            path = str(file.path)
            raise UserError(f"the head's manifest names {path!r}, outside the run's folder")
    # A link of several names could lead through another link, which may change later.
    return [file for file in files if file.link is None or _is_a_name(file.link)]


def _remote_file(entry: dict[str, Any]) -> RemoteFile:
    """Raises ValueError for a name that no file here can have."""
    path, link = str(entry["path"]), str(entry.get("link") or "")
    os.fsencode(path + link)
    size, mtime_ns = int(entry["size"]), int(entry["mtime_ns"])
    return RemoteFile(PurePosixPath(path), size, mtime_ns, link or None)


def is_there(file: RemoteFile, below: Below, path: PurePosixPath) -> bool:
    """Whether this version of a file is at a path."""
    try:
        status = below.status(path)
        if file.link is not None:
            return stat.S_ISLNK(status.st_mode) and below.read_link(path) == file.link
    except OSError:
        return False
    same = (status.st_size, status.st_mtime_ns) == (file.size, file.mtime_ns)
    return stat.S_ISREG(status.st_mode) and same


def _receive(
    runs: Runs, name: str, listed: list[RemoteFile], folder: Path, below: Below
) -> dict[str, int]:
    """Receives until all files of the newest manifest are there, then renames them."""
    for _ in range(ROUNDS):
        new = [file for file in listed if not is_there(file, below, file.path)]
        files = [file for file in new if file.link is None]
        missing = [file for file in files if not is_there(file, below, PARTIAL / file.path)]
        if not missing:
            break
        room = _room(name, missing, folder)
        with runs.files(name, [str(file.path) for file in missing]) as files_of_runs:
            _write(files_of_runs, missing, below, room)
        listed = manifest(runs.listing(name))
    # A file that changed in each round is taken as it was; the next pull updates it.
    return _put_in_place(new, folder, below)


def _room(name: str, missing: list[RemoteFile], folder: Path) -> int:
    """Returns how many bytes these files may have when they arrive: some still grow.

    Raises:
        UserError: The disk has too little space for them.
    """
    size = sum(file.size for file in missing)
    free = shutil.disk_usage(folder).free - KEPT_FREE
    if size > free:
        raise refused(
            f"{folder}: {name} has {size / 2**20:,.0f} MiB of new files, and "
            f"only {max(0, free) / 2**20:,.0f} MiB are available on this disk",
            f"volley pull {name} --to FOLDER, on another disk",
        )
    return min(free, size + GROWTH)


def _write(
    contents: Iterator[tuple[str, int, IO[bytes]]],
    wanted: Iterable[RemoteFile],
    below: Below,
    room: int,
) -> None:
    """Writes each file; a complete one gets its name, and the head's time."""
    by_path = {str(file.path): file for file in wanted}
    shown = sys.stderr.isatty()
    for path, size, content in contents:
        # A file that no longer has room is requested again with its new size.
        if size > room:
            continue
        file = by_path.pop(path, None)
        if file is None:
            continue
        room -= size
        if shown:
            print(f"{size / 2**20:9,.1f} MiB  {printable(path)}", file=sys.stderr)
        with below.writing(PARTIAL / file.path, file.mtime_ns) as written:
            shutil.copyfileobj(content, written, CHUNK)


def _put_in_place(new: list[RemoteFile], folder: Path, below: Below) -> dict[str, int]:
    """Renames the files that have arrived, links last; returns their number and size."""
    files = [file for file in new if file.link is None and _arrived(file, below)]
    links = [file for file in new if file.link is not None]
    for file in files:
        below.move(PARTIAL / file.path, file.path)
    for file in links:
        below.replace_link(file.path, str(file.link))
    if (folder / PARTIAL).exists():
        shutil.rmtree(folder / PARTIAL)
    return {"files": len(files) + len(links), "bytes": sum(file.size for file in files)}


def _arrived(file: RemoteFile, below: Below) -> bool:
    with suppress(OSError):
        return stat.S_ISREG(below.status(PARTIAL / file.path).st_mode)
    return False


def _is_of_a_run(path: PurePosixPath) -> bool:
    """Whether it is relative and has no name that begins with a dot, as those of files in work."""
    return bool(path.parts) and all(map(_is_a_name, path.parts))


def _is_a_name(part: str) -> bool:
    return bool(part) and not part.startswith(".") and "/" not in part and "\0" not in part
