"""`volley pull`: downloads the runs of an experiment and their checkpoints, new files only.

Files arrive in a folder beside their places. When all files of a manifest are there they are
renamed, so that a checkpoint is never incomplete; a broken download continues with the next pull.
"""

import argparse
import json
import os
import shutil
import sys
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from payload.errors import UserError
from volley.head import Head
from volley.stack import Stack
from volley.tables import show

PARTIAL = ".volley-partial"
ROUNDS = 5
"""A training keeps writing; files that it replaced since a manifest are requested again."""
CHUNK = 2**20


@dataclass(frozen=True)
class RemoteFile:
    path: PurePosixPath
    size: int
    mtime_ns: int
    link: str | None = None
    """The target, if it is a link."""


def pull(options: argparse.Namespace) -> int:
    """Downloads an experiment's folder; deletes nothing on this machine."""
    answer = receive(Head(Stack(options.stack)), options.name, options.to)
    line = f"{answer['folder']}: {answer['files']} new files, {answer['bytes'] / 2**20:,.1f} MiB"
    show(options.as_json, answer, line)
    return 0


def receive(head: Head, name: str, to: Path | None = None) -> dict[str, Any]:
    """Downloads an experiment's runs to a folder, results/NAME by default.

    Returns:
        The folder, and the number and bytes of the new files.

    Raises:
        UserError: The folder cannot be written, the head refuses, or the connection was lost.
    """
    folder = to or Path("results") / name
    partial = folder / PARTIAL
    try:
        partial.mkdir(parents=True, exist_ok=True)
        received = _receive(head, name, folder, partial)
    except OSError as error:
        raise UserError(f"--to {folder}: cannot be written: {error.strerror or error}") from None
    return {"name": name, "folder": str(folder), **received}


def read_files(head: Head, name: str, paths: Sequence[str]) -> dict[str, bytes]:
    """Returns the content of files of an experiment's runs, without those that do not exist.

    Raises:
        UserError: The head refuses, or the connection was lost.
    """
    with (
        head.reading("files", name, stdin=json.dumps(paths).encode()) as stream,
        _archive(stream) as archive,
    ):
        regular = (member for member in archive if member.isreg())
        contents = ((member.name, archive.extractfile(member)) for member in regular)
        return {path: content.read() for path, content in contents if content is not None}


def manifest(answer: dict[str, Any]) -> list[RemoteFile]:
    """Returns the files of volley-head's manifest, without links that lead out of the folder.

    Raises:
        UserError: A path is not in the folder.
    """
    files = []
    for file in answer["files"]:
        path, link = PurePosixPath(file["path"]), file.get("link") or None
        if not _is_inside(path):
            raise UserError(f"the head's manifest names {str(path)!r}, outside the run's folder")
        if link is None or _is_inside(PurePosixPath(os.path.normpath(path.parent / link))):
            files.append(RemoteFile(path, file["size"], file["mtime_ns"], link))
    return files


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
    # A file that changed in each round is taken as it was; the next pull updates it.
    return _put_in_place(new, folder, partial)


def _unpack(stream: IO[bytes], wanted: Iterable[RemoteFile], partial: Path) -> None:
    """Writes each member of a tar file; a complete one gets its name, and the head's time."""
    by_path = {str(file.path): file for file in wanted}
    shown = sys.stderr.isatty()
    with _archive(stream) as archive:
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


@contextmanager
def _archive(stream: IO[bytes]) -> Iterator[tarfile.TarFile]:
    """Opens a tar stream; raises EOFError if the stream is cut."""
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            yield archive
    except tarfile.ReadError as error:
        raise EOFError(str(error)) from None


def _put_in_place(new: list[RemoteFile], folder: Path, partial: Path) -> dict[str, int]:
    """Renames the files that have arrived, links last; returns their number and size."""
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
