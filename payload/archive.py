"""Tar files that are read piece by piece: their size is known, and no file is in memory as a whole.

The same content gives the same bytes: times and owners are left out.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from payload.errors import UserError

PIECE = 2**16


class Archive:
    """A tar file of content in memory, of files, and of other archives."""

    def __init__(self, members: Mapping[str, bytes | Path | Archive] | None = None) -> None:
        """
        Args:
            members: What it has, by place, in this order.
        """
        self._members = dict(members or {})

    def __bool__(self) -> bool:
        return bool(self._members)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Archive) and self._members == other._members

    def __hash__(self) -> int:
        return hash(tuple(self._members))

    @property
    def size(self) -> int:
        """In bytes."""
        rest = sum(len(header) + _padded(size) for header, size in self._headers.values())
        return -(-(rest + 2 * tarfile.BLOCKSIZE) // tarfile.RECORDSIZE) * tarfile.RECORDSIZE

    def content(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """Yields its content.

        Raises:
            UserError: A file has another size than when this archive was made.
            OSError: A file cannot be read.
        """
        left = self.size
        for name, (header, size) in self._headers.items():
            yield header
            yield from _pieces(self._members[name], size)
            padding = _padded(size) - size
            yield bytes(padding)
            left -= len(header) + size + padding
        yield bytes(left)

    @cached_property
    def _headers(self) -> dict[str, tuple[bytes, int]]:
        """Each member's header and size."""
        headers = {}
        for name, member in self._members.items():
            info = tarfile.TarInfo(name)
            info.mode = 0o644
            if isinstance(member, Path):
                status = member.stat()
                info.size, info.mode = status.st_size, 0o755 if status.st_mode & 0o100 else 0o644
            else:
                info.size = member.size if isinstance(member, Archive) else len(member)
            headers[name] = (info.tobuf(tarfile.PAX_FORMAT), info.size)
        return headers


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _pieces(member: bytes | Path | Archive, size: int) -> Iterator[bytes]:
    if isinstance(member, bytes):
        yield member
    elif isinstance(member, Archive):
        yield from member.pieces()
    else:
        with member.open("rb") as file:
            while piece := file.read(min(PIECE, size)):
                size -= len(piece)
                yield piece
            if size or file.read(1):
                raise UserError(f"{member} changed while it was read. Next: the same command again")
