"""Archives of files: the bytes of tarfile's own, read piece by piece."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from payload.archive import PIECE, Archive
from payload.errors import UserError


def test_it_has_the_bytes_that_tarfile_writes(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"x" * (3 * PIECE + 7))
    program.chmod(0o750)
    long = f"{'é' * 150}/a.txt"
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content, mode in ((long, b"a", 0o644), ("p", program.read_bytes(), 0o755)):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            tar.addfile(info, io.BytesIO(content))
    archive = Archive({long: b"a", "p": program})
    assert archive.content() == written.getvalue()
    assert archive.size == len(written.getvalue())


def test_it_may_contain_another_one_and_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(20 * PIECE)
    outer = Archive({"inner.tar": Archive({"large": large}), "b": b"b"})
    pieces = list(outer.pieces())
    assert max(map(len, pieces)) == PIECE
    assert sum(map(len, pieces)) == outer.size
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as tar:
        inner = tar.extractfile("inner.tar")
        assert inner is not None
        with tarfile.open(fileobj=inner) as members:
            assert [(member.name, member.size) for member in members] == [("large", 20 * PIECE)]


@pytest.mark.parametrize("size", [1, 3])
def test_a_file_that_changes_meanwhile_is_an_error(tmp_path: Path, size: int) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"12")
    archive = Archive({"file": file})
    assert archive.size
    file.write_bytes(b"x" * size)
    with pytest.raises(UserError, match=r"file changed while it was read\. Next: the same command"):
        archive.content()
