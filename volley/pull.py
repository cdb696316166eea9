"""`volley pull`: the runs of an experiment and their checkpoints, only what is new.

Files arrive in a folder beside their places. When all of one manifest are there they are renamed,
so that a checkpoint is never there in part; what a broken connection has left is used again.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from payload.errors import UserError
from volley.head import Head
from volley.stack import Stack
from volley.tables import show

PARTIAL = ".volley-partial"
ROUNDS = 5
"""A training writes on; what it has replaced since a manifest is asked for again."""
CHUNK = 2**20


@dataclass(frozen=True)
class RemoteFile:
    """A file on the head."""

    path: PurePosixPath
    size: int
    mtime_ns: int
    link: str | None = None
    """Where it leads, if it is a link."""


def pull(stack: Stack, name: str, to: Path | None, as_json: bool) -> int:
    """Brings an experiment's folder to this machine; deletes nothing there."""
    folder = to or Path("results") / name
    partial = folder / PARTIAL
    head = Head(stack)
    try:
        partial.mkdir(parents=True, exist_ok=True)
        received = _receive(head, name, folder, partial)
    except OSError as error:
        raise UserError(f"--to {folder}: cannot be written: {error.strerror or error}") from None
    answer = {"name": name, "folder": str(folder), **received}
    show(
        as_json,
        answer,
        f"{folder}: {received['files']} new files, {received['bytes'] / 2**20:,.1f} MiB",
    )
    return 0


def manifest(answer: dict[str, Any]) -> list[RemoteFile]:
    """Returns the files of volley-head's manifest, without links that lead out of the folder.

    Raises:
        UserError: A path is not in the folder.
    """
    found = []
    for file in answer["files"]:
        path, link = PurePosixPath(file["path"]), file.get("link") or None
        if not _is_inside(path):
            raise UserError(f"the head's manifest names {str(path)!r}, which is not in its folder")
        if link is None or _is_inside(PurePosixPath(os.path.normpath(path.parent / link))):
            found.append(RemoteFile(path, file["size"], file["mtime_ns"], link))
    return found


def is_there(file: RemoteFile, place: Path) -> bool:
    """Whether a place has this version of a file."""
    if file.link is not None:
        return place.is_symlink() and os.readlink(place) == file.link
    if place.is_symlink() or not place.is_file():
        return False
    status = place.stat()
    return (status.st_size, status.st_mtime_ns) == (file.size, file.mtime_ns)


def _receive(head: Head, name: str, folder: Path, partial: Path) -> dict[str, int]:
    """Receives until all files of the newest manifest are there, then renames them."""
    for _ in range(ROUNDS):
        files = manifest(head.ask("manifest", name))
        new = [file for file in files if not is_there(file, folder / file.path)]
        files = [file for file in new if file.link is None]
        missing = [file for file in files if not is_there(file, partial / file.path)]
        if not missing:
            break
        wanted = json.dumps([str(file.path) for file in missing]).encode()
        with head.reading("files", name, stdin=wanted) as stream:
            _unpack(stream, missing, partial)
    # A file that has changed in each round is taken as it was; the next pull brings it up to date.
    return _put_in_place(new, folder, partial)


def _unpack(stream: IO[bytes], wanted: Iterable[RemoteFile], partial: Path) -> None:
    """Writes each member of a tar file; a whole one gets its name, and the head's time."""
    by_path = {str(file.path): file for file in wanted}
    shown = sys.stderr.isatty()
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                file = by_path.get(member.name.removeprefix("./"))
                content = archive.extractfile(member) if member.isreg() else None
                if file is None or content is None:
                    continue
                if shown:
                    print(f"{member.size / 2**20:9,.1f} MiB  {file.path}", file=sys.stderr)
                place = partial / file.path
                place.parent.mkdir(parents=True, exist_ok=True)
                aside = place.with_name(f"{place.name}.part")
                with aside.open("wb") as written:
                    shutil.copyfileobj(content, written, CHUNK)
                os.utime(aside, ns=(file.mtime_ns, file.mtime_ns))
                aside.replace(place)
    except tarfile.ReadError as error:
        raise EOFError(str(error)) from None


def _put_in_place(new: list[RemoteFile], folder: Path, partial: Path) -> dict[str, int]:
    """Renames what has arrived, the links at last; returns how much it was."""
    arrived = [file for file in new if file.link or (partial / file.path).is_file()]
    for file in sorted(arrived, key=lambda file: file.link is not None):
        place = folder / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        if file.link is None:
            (partial / file.path).replace(place)
            continue
        aside = partial / "link"
        aside.unlink(missing_ok=True)
        aside.symlink_to(file.link)
        aside.replace(place)
    shutil.rmtree(partial)
    return {"files": len(arrived), "bytes": sum(file.size for file in arrived if not file.link)}


def _is_inside(path: PurePosixPath) -> bool:
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts
