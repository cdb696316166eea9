"""`volley pull` fetches new files only, each whole, and continues after a broken connection."""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from payload.errors import UserError
from tests.volley.conftest import Laptop
from tests.volley.head import LocalHead
from volley.head import Head
from volley.pull import manifest, receive
from volley.runs import RunsOfHead


@pytest.fixture
def trained(head: LocalHead) -> LocalHead:
    """A head with a run of two checkpoints; `best` links to the newest."""
    head.experiment("pong")
    head.run_file("pong", "runs/a/progress.csv", b"steps\n1\n")
    head.run_file("pong", "runs/a/checkpoints/1/weights", b"1" * 100_000)
    weights = head.run_file("pong", "runs/a/checkpoints/2/weights", b"2" * 100_000)
    (weights.parent.parent / "best").symlink_to("2")
    return head


def pulled(laptop: Laptop) -> dict[str, bytes]:
    folder = laptop.folder / "results" / "pong"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def inode(laptop: Laptop, path: str) -> int:
    """Returns the inode of a pulled file, which changes if the file is received again."""
    return (laptop.folder / "results/pong" / path).stat().st_ino


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
def test_pull_brings_the_runs_and_their_checkpoints(connected: Laptop) -> None:
    connected.volley("pull", "pong")
    assert pulled(connected) == {
        "runs/a/progress.csv": b"steps\n1\n",
        "runs/a/checkpoints/1/weights": b"1" * 100_000,
        "runs/a/checkpoints/2/weights": b"2" * 100_000,
    }
    assert os.readlink(connected.folder / "results/pong/runs/a/checkpoints/best") == "2"


@pytest.mark.slow
def test_a_second_pull_asks_only_for_what_is_new(connected: Laptop, trained: LocalHead) -> None:
    connected.volley("pull", "pong")
    before = inode(connected, "runs/a/checkpoints/1/weights")
    trained.run_file("pong", "runs/a/progress.csv", b"steps\n1\n2\n")
    trained.run_file("pong", "runs/a/checkpoints/3/weights", b"3")
    said = json.loads(connected.volley("pull", "pong", "--json"))
    assert said["files"] == 2
    assert inode(connected, "runs/a/checkpoints/1/weights") == before
    assert pulled(connected)["runs/a/progress.csv"] == b"steps\n1\n2\n"


@pytest.mark.slow
def test_a_broken_pull_leaves_no_part_in_place_and_the_next_takes_the_rest(
    connected: Laptop, trained: LocalHead
) -> None:
    trained.cut("files", after=150_000)
    assert "the connection to the head was lost" in connected.volley("pull", "pong", code=2)
    whole = {file for file in pulled(connected) if not file.endswith(".part")}
    assert {file.removeprefix(".volley-partial/") for file in whole} == {
        "runs/a/progress.csv",
        "runs/a/checkpoints/1/weights",
    }
    before = inode(connected, ".volley-partial/runs/a/checkpoints/1/weights")
    connected.volley("pull", "pong")
    assert inode(connected, "runs/a/checkpoints/1/weights") == before
    assert len(pulled(connected)) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
def test_a_folder_that_cannot_be_written_is_told(connected: Laptop) -> None:
    (connected.folder / "file").touch()
    said = connected.volley("pull", "pong", "--to", "file", code=2)
    assert said.startswith("--to file: cannot be written: ")


def entry(path: str, **more: str | None) -> dict[str, Any]:
    return {"path": path, "size": 1, "mtime_ns": 1, **more}


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", "", ".git/config", "a/.b", "a\0"])
def test_a_path_out_of_the_folder_is_refused(path: str) -> None:
    with pytest.raises(UserError, match="outside the run's folder"):
        manifest({"files": [entry(path)]})


@pytest.mark.parametrize(
    ("link", "kept"), [("b", True), ("b/c", False), ("../b", False), ("/b", False), ("..", False)]
)
def test_only_a_link_to_a_name_in_its_own_folder_is_taken(link: str, kept: bool) -> None:
    assert bool(manifest({"files": [entry("a", link=link)]})) is kept


@pytest.mark.slow
def test_files_have_the_heads_time(connected: Laptop, trained: LocalHead) -> None:
    place = trained.run_file("pong", "runs/a/old", b"")
    os.utime(place, ns=(10**18, 10**18))
    connected.volley("pull", "pong", "--to", "here")
    assert Path(connected.folder, "here/runs/a/old").stat().st_mtime_ns == 10**18


class HostileHead:
    """Answers with any manifest, and sends a file for each path that is asked for, or larger."""

    def __init__(self, files: list[dict[str, Any]], size: int = 1) -> None:
        self.files, self.size = files, size

    def ask(self, *_: str) -> dict[str, Any]:
        return {"files": self.files}

    @contextmanager
    def reading(self, *_: str, stdin: bytes) -> Iterator[IO[bytes]]:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for name in json.loads(stdin):
                member = tarfile.TarInfo(name)
                member.size = self.size
                tar.addfile(member, io.BytesIO(b"x" * self.size))
        yield io.BytesIO(packed.getvalue())


def pull_from(head: HostileHead, to: Path) -> dict[str, Any]:
    return receive(RunsOfHead(cast("Head", head)), "pong", to)


names = st.sampled_from([*["a", "b", "x"] * 8, "a.part", "link", "..", ".volley-partial"])
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
up = st.tuples(st.integers(0, 3), st.sampled_from(["", "a", "b", "x"]))
targets = up.map(lambda where: "/".join([*[".."] * where[0], *filter(None, [where[1]])]))
links = st.none() | targets | st.sampled_from(["/tmp", "."])
# As text each link stays inside; the link a/b/m/l lies in n, where ../../.. leads two levels up.
SWAPPED = [
    [entry("n/file"), entry("a/b/file")],
    [entry("a/b/m", link="../../n"), entry("a/b/m/l", link="../../../x")],
    [entry("n/l/written")],
]
entries = st.builds(lambda path, link: entry(path, link=link), paths, links)


@given(st.lists(st.lists(entries, min_size=1, max_size=4), min_size=1, max_size=4))
@example(SWAPPED)
@settings(max_examples=300, deadline=None)
def test_no_sequence_of_pulls_writes_outside_the_folder(
    manifests: list[list[dict[str, Any]]],
) -> None:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent, "above/results/pong")
        around = {Path(parent, "x"), Path(parent, "above/x"), Path(parent, "above/results/x")}
        for other in around:
            other.mkdir(parents=True)
        for files in manifests:
            with suppress(UserError):
                pull_from(HostileHead(files), folder)
            # Of every pull that was begun, the folder is all that there is.
            outside = [path for path in Path(parent).rglob("*") if folder not in path.parents]
            assert {*outside} <= {folder, *folder.parents, *around}
            for path in folder.rglob("*"):
                assert Path(os.path.realpath(path)).is_relative_to(folder.resolve())


def test_folders_that_become_links_do_not_lead_out(tmp_path: Path) -> None:
    folder = tmp_path / "above/results/pong"
    pull_from(HostileHead([entry("a/b/c/file")]), folder)
    (folder / "a/b/c/file").unlink()
    (folder / "a/b/c").rmdir()
    (folder / "a/b/c").symlink_to(tmp_path)
    with pytest.raises(UserError, match="a/b/c: is a link or a file here, and a folder on the"):
        pull_from(HostileHead([entry("a/b/c/written")]), folder)
    assert not (tmp_path / "written").exists()


def test_a_pull_larger_than_the_disk_downloads_nothing(tmp_path: Path) -> None:
    large = {"path": "a", "size": 2**60, "mtime_ns": 1}
    with pytest.raises(UserError, match=r"pong has .* MiB of new files, and .* on this disk"):
        pull_from(HostileHead([large]), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_far_larger_than_the_manifest_says_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("volley.pull.GROWTH", 100)
    assert pull_from(HostileHead([entry("a")], size=1000), tmp_path)["files"] == 0
    assert pull_from(HostileHead([entry("a")], size=50), tmp_path)["files"] == 1


def test_a_manifest_that_cannot_be_read_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the head's manifest cannot be read"):
        pull_from(HostileHead([entry("\ud800")]), tmp_path / "new")
    assert not (tmp_path / "new").exists()
