"""Tar archives from another machine: their sizes are checked before anything is unpacked."""

import shutil
import tarfile
from pathlib import Path, PurePosixPath
from typing import IO

from .below import Below

MAX_HEADER = 2**20
"""Bytes of one extended header, which has a long name; tarfile reads it into memory."""
HEADERS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
MAX_MEMBERS = 100_000
KEPT_FREE = 2**30
"""Bytes of the disk that unpacking leaves free."""


class ArchiveError(Exception):
    """An archive that is not unpacked; the text says why."""


class _Member(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: "bytes | bytearray", encoding: str, errors: str) -> "_Member":
        member = super().frombuf(buf, encoding, errors)
        if member.type in HEADERS and member.size > MAX_HEADER:
            raise tarfile.ReadError(f"a name in it has {member.size:,} bytes")
        return member


def open_stream(stream: IO[bytes]) -> tarfile.TarFile:
    """Opens a tar stream; raises tarfile.ReadError, also later, for one that would fill memory."""
    return tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member)


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks an archive that has regular files only; they keep the bit of a program.

    Raises:
        ArchiveError: It has something else, or too much.
        tarfile.TarError: It is not an archive.
    """
    with tarfile.open(archive, "r:", tarinfo=_Member) as tar, Below(folder) as below:
        members, whole = [], archive.stat().st_size
        for member in tar:
            path = PurePosixPath(member.name)
            if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
                raise ArchiveError(f"{member.name} is not a regular file")
            if path.is_absolute() or ".." in path.parts or not path.name:
                raise ArchiveError(f"{member.name} is outside the folder")
            if member.offset_data + member.size > whole:
                raise ArchiveError(f"{member.name} is incomplete")
            members.append(member)
            if len(members) > MAX_MEMBERS:
                raise ArchiveError(f"it has more than {MAX_MEMBERS:,} files")
        check_room(sum(member.size for member in members), folder)
        for member in members:
            content = tar.extractfile(member)
            assert content is not None
            path = PurePosixPath(member.name)
            with below.writing(path, int(member.mtime * 1e9), member.mode & 0o755) as file:
                shutil.copyfileobj(content, file)


def check_room(size: int, folder: Path) -> None:
    """Raises ArchiveError unless the disk has room for this many bytes."""
    free = shutil.disk_usage(folder).free - KEPT_FREE
    if size > free:
        raise ArchiveError(
            f"it has {size / 2**20:,.0f} MiB, and {max(0, free) / 2**20:,.0f} MiB may be used here"
        )
