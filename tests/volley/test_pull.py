"""`volley pull` fetches new files only, each whole, and continues after a broken connection."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from payload.errors import UserError
from tests.volley.conftest import Laptop
from tests.volley.head import LocalHead
from volley.pull import manifest


@pytest.fixture
def trained(head: LocalHead) -> LocalHead:
    """A head with a run of two checkpoints; `best` links to the newest."""
    head.experiment("pong")
    head.run_file("pong", "runs/a/progress.csv", b"steps\n1\n")
    head.run_file("pong", "runs/a/checkpoints/1/weights", b"1" * 100_000)
    weights = head.run_file("pong", "runs/a/checkpoints/2/weights", b"2" * 100_000)
    (weights.parent.parent / "best").mkdir()
    (weights.parent.parent / "best" / "weights").symlink_to("../2/weights")
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
        "runs/a/checkpoints/best/weights": b"2" * 100_000,
    }


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
    assert len(pulled(connected)) == 4


@pytest.mark.slow
@pytest.mark.usefixtures("trained")
def test_a_folder_that_cannot_be_written_is_told(connected: Laptop) -> None:
    (connected.folder / "file").touch()
    said = connected.volley("pull", "pong", "--to", "file", code=2)
    assert said.startswith("--to file: cannot be written: ")


def entry(path: str, **more: str) -> dict[str, Any]:
    return {"path": path, "size": 1, "mtime_ns": 1, **more}


@pytest.mark.parametrize("path", ["../a", "/a", "a/../../b", ""])
def test_a_path_out_of_the_folder_is_refused(path: str) -> None:
    with pytest.raises(UserError, match="outside the run's folder"):
        manifest({"files": [entry(path)]})


@pytest.mark.parametrize(("link", "kept"), [("b", True), ("../b", False), ("/etc/passwd", False)])
def test_a_link_out_of_the_folder_stays_behind(link: str, kept: bool) -> None:
    assert bool(manifest({"files": [entry("a", link=link)]})) is kept


@pytest.mark.slow
def test_files_have_the_heads_time(connected: Laptop, trained: LocalHead) -> None:
    place = trained.run_file("pong", "runs/a/old", b"")
    os.utime(place, ns=(10**18, 10**18))
    connected.volley("pull", "pong", "--to", "here")
    assert Path(connected.folder, "here/runs/a/old").stat().st_mtime_ns == 10**18
