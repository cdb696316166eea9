"""The head's disk: logs that grow, runs that are over and saved, and a real file system that fills.

The file system is in memory and takes none before it is written to.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from head.disk import GIB, LEAST, LOG_BYTES, LOW
from tests.head.installed_head import InstalledHead
from tests.head.queue.queue_head import cartpole, sent
from tests.payload.small_disk import MEBIBYTE, small_disk
from tests.python_310 import PYTHON

pytestmark = pytest.mark.slow

DAY = 86400.0


class FillingHead(InstalledHead):
    """A head with experiments that are over, and the runs of some."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.runs = self.home / "runs"
        self.marks = self.root / "var/lib/volley-identity/saved"

    def experiment(self, name: str, state: str, **values: Any) -> Path:
        folder = self.experiments / name
        folder.mkdir()
        record = {"name": name, "state": state, "key": f"{name}-key", "submitted": 1.0, **values}
        (folder / "state.json").write_text(json.dumps(record))
        return folder

    def run(
        self,
        name: str,
        age_days: float,
        saved: bool = True,
        mebibytes: int = 1,
        file: str = "weights",
    ) -> Path:
        """Writes a run of an experiment, and a checkpoint that a link names."""
        folder = self.runs / f"{name}-key"
        weights = folder / "runs/a/checkpoints/checkpoint_1" / file
        weights.parent.mkdir(parents=True)
        weights.write_bytes(bytes(mebibytes * MEBIBYTE))
        link = weights.parents[1] / "best"
        link.symlink_to("checkpoint_1")
        at = time.time() - age_days * DAY
        for path in (weights, link):
            os.utime(path, (at, at), follow_symlinks=False)
        # As results.py marks them: tests/head/results/test_save.py.
        for path, mark in (
            (weights, f"{weights.stat().st_mtime_ns} {weights.stat().st_size}"),
            (link, "checkpoint_1"),
        ):
            place = self.marks / path.relative_to(self.runs)
            if saved:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(mark)
        return folder

    def package(self, path: str, used: float) -> Path:
        folder = self.home / path
        (folder / "bin").mkdir(parents=True)
        (folder / "bin").chmod(0o555)
        os.utime(folder, (used, used))
        return folder

    def take(self, mebibytes: int) -> None:
        """Takes space on the disk."""
        (self.home / "other").write_bytes(bytes(mebibytes * MEBIBYTE))

    def start_disk(self) -> subprocess.Popen[str]:
        command = [str(PYTHON or sys.executable), "-m", "head.disk"]
        environment = {**os.environ, **self.environment, "PYTHONDONTWRITEBYTECODE": "1"}
        out = subprocess.PIPE
        return subprocess.Popen(command, cwd="/", env=environment, stdout=out, text=True)

    def keep_space(self) -> str:
        """Runs what the timer starts; returns its output."""
        with self.start_disk() as process:
            assert process.stdout is not None
            output = process.stdout.read()
        assert process.returncode == 0
        return output

    def left(self) -> list[str]:
        return sorted(path.name for path in self.runs.iterdir())


@pytest.fixture
def head(tmp_path: Path) -> Iterator[FillingHead]:
    """A head on whose disk 9 MiB fit before it has LOW left."""
    folder = tmp_path / "var/lib/volley"
    folder.mkdir(parents=True)
    with small_disk(folder, LOW + 9 * MEBIBYTE):
        yield FillingHead(tmp_path)


def test_runs_that_are_over_and_saved_go_oldest_first_until_there_is_space(
    head: FillingHead,
) -> None:
    for name, age in (("new", 1), ("oldest", 3), ("old", 2)):
        head.experiment(name, "FINISHED")
        head.run(name, age, mebibytes=4)
    assert "removing runs/oldest-key" in head.keep_space()
    assert head.left() == ["new-key", "old-key"]
    assert head.keep_space() == ""
    # What Blob has of it is still known.
    assert (head.marks / "oldest-key/runs/a/checkpoints/checkpoint_1/weights").exists()


def test_what_blob_has_not_or_somebody_needs_stays_on_a_full_disk(head: FillingHead) -> None:
    for name, state in (
        ("unsaved", "FAILED"),
        ("changed", "FINISHED"),
        ("training", "TRAINING"),
        ("queued", "QUEUED"),
        ("fresh", "STOPPED"),
        ("stopped", "STOPPED"),
        ("undelivered", "FINISHED"),
    ):
        head.experiment(name, state)
    head.run("unsaved", 9, saved=False)
    (head.run("changed", 9) / "runs/a/progress.csv").write_text("not saved\n")
    for name in ("training", "queued", "stopped", "orphan"):
        head.run(name, 9)
    head.run("undelivered", 9, file="mlflow_undelivered.json")
    (head.experiments / "undelivered/payload").mkdir()
    head.run("fresh", 0.01)  # Somebody may have just restored it, to download it.
    (head.runs / "notebooks").mkdir()
    head.take(12)
    output = head.keep_space()
    assert head.left() == [
        *("changed-key", "fresh-key", "notebooks", "queued-key", "training-key"),
        *("undelivered-key", "unsaved-key"),
    ]
    assert (head.experiments / "undelivered/payload").exists()
    assert output.endswith("GiB left, and nothing more can be removed\n")


def test_a_run_is_not_taken_from_under_a_save_or_a_start(head: FillingHead) -> None:
    # A save would delete what is missing of the checkpoints from Blob.
    head.experiment("pong", "FINISHED")
    head.run("pong", 2)
    resumed = head.experiment("resumed", "STOPPED")
    head.run("resumed", 1)
    head.take(12)
    saving = os.open(head.marks.parent, os.O_RDONLY)
    try:
        fcntl.flock(saving, fcntl.LOCK_EX)
        with head.start_disk() as process:
            time.sleep(1)
            assert head.left() == ["pong-key", "resumed-key"]
            state = (resumed / "state.json").read_text()
            (resumed / "state.json").write_text(state.replace("STOPPED", "QUEUED"))
            fcntl.flock(saving, fcntl.LOCK_UN)
            process.communicate()
    finally:
        os.close(saving)
    assert head.left() == ["resumed-key"]


def test_packages_and_images_go_first_unless_an_unfinished_experiment_has_used_them(
    head: FillingHead,
) -> None:
    head.experiment("pong", "TRAINING", submitted=1000.0)
    head.run("other", 9)
    places = ("packages/{}", ".images/{}", ".cache/volley/conda-{}")
    for place in places:
        head.package(place.format("old"), used=999.0)
        head.package(place.format("used"), used=1001.0)
    cache = head.package(".cache/uv", used=1.0)
    head.take(9)
    removed = [line.rpartition(" ")[2] for line in head.keep_space().splitlines()]
    assert removed[:4] == [*(place.format("old") for place in places), "runs/other-key"]
    assert all((head.home / place.format("used")).exists() for place in places)
    # A worker that starts may be installing from it.
    assert cache.exists()


def test_an_experiment_that_starts_keeps_all_packages(head: FillingHead) -> None:
    head.experiment("pong", "STARTING", submitted=1000.0)
    old = head.package("packages/old", used=999.0)
    head.take(12)
    head.keep_space()
    assert old.exists()


def test_what_was_sent_of_a_finished_experiment_goes_and_its_record_and_log_stay(
    head: FillingHead,
) -> None:
    folders = [head.experiment("done", "FINISHED"), head.experiment("stopped", "STOPPED")]
    for folder in folders:
        (folder / "source").mkdir()
        (folder / "files.tar").touch()
        (folder / "output.log").touch()
    head.take(12)
    head.keep_space()
    finished, stopped = (sorted(os.listdir(folder)) for folder in folders)
    assert finished == ["output.log", "state.json"]
    assert stopped == ["files.tar", "output.log", "source", "state.json"]


def test_a_removal_that_was_killed_is_finished(head: FillingHead) -> None:
    left = head.package("packages/.removed-old", used=1.0)
    head.keep_space()
    assert not left.exists()


def test_what_a_killed_submit_or_installation_left_is_removed_after_a_day(
    head: FillingHead,
) -> None:
    places = ("experiments/.incoming-a1b2", "packages/.0123456789ab.77")
    left = [head.package(place, used=time.time() - 2 * DAY) for place in places]
    at_work = [head.package(f"{place}3", used=time.time() - DAY / 2) for place in places]
    head.keep_space()
    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in at_work)


def test_a_long_log_is_rotated_while_it_is_written_and_followed(head: FillingHead) -> None:
    log = head.experiment("pong", "TRAINING") / "output.log"
    command = [sys.executable, "-m", "head.command", "logs", "pong", "--follow"]
    environment = {**os.environ, **head.environment}
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as followed,
        log.open("ab", buffering=0) as writer,
    ):
        try:
            assert followed.stdout is not None
            writer.write(b"first\n")
            assert followed.stdout.readline() == "first\n"
            writer.truncate(LOG_BYTES + 1)
            # Only a follower that has read it all sees that it became shorter.
            rest = LOG_BYTES + 1 - len("first\n")
            assert len(followed.stdout.read(rest)) == rest
            head.keep_space()
            assert log.stat().st_size == 0
            assert log.with_name("output.log.1").stat().st_size == LOG_BYTES + 1
            writer.write(b"second\n")
            assert followed.stdout.readline() == "second\n"
        finally:
            followed.kill()
    assert log.read_bytes() == b"second\n"


def test_a_log_that_has_filled_the_disk_is_emptied_without_a_copy(tmp_path: Path) -> None:
    folder = tmp_path / "var/lib/volley"
    folder.mkdir(parents=True)
    with small_disk(folder):
        head = FillingHead(tmp_path)
        head.experiment("pong", "TRAINING")
        log = head.run("pong", 1) / "runs/a/driver_log.txt"
        with log.open("wb") as file:
            file.truncate(LOG_BYTES + 1)  # It takes no space, but its copy does.
        assert "older lines are lost: [Errno 28]" in head.keep_space()
        assert log.stat().st_size == 0
        assert not log.with_name("driver_log.txt.1").exists()


def test_a_full_disk_has_a_reserve_for_the_queue(tmp_path: Path) -> None:
    folder = tmp_path / "var/lib/volley"
    folder.mkdir(parents=True)
    with small_disk(folder, LOW + 200 * MEBIBYTE):
        head = FillingHead(tmp_path)
        head.keep_space()
        reserve = head.home / ".reserve"
        assert reserve.stat().st_blocks * 512 == 64 * MEBIBYTE
        head.take(8)
        subprocess.run(["mount", "-o", "remount,size=73m", str(folder)], check=True)
        head.keep_space()
        assert not reserve.exists()


def test_nothing_is_submitted_or_resumed_where_the_disk_has_no_space(tmp_path: Path) -> None:
    folder = tmp_path / "var/lib/volley"
    folder.mkdir(parents=True)
    with small_disk(folder, LEAST - GIB):
        head = FillingHead(tmp_path)
        head.experiment("old", "STOPPED")
        for answer in (
            head.ask("submit", "pong", stdin=sent(cartpole())),
            head.ask("resume", "old"),
        ):
            assert answer == {
                "error": "the head's disk has 4.0 GiB left, less than the 5 GiB that an "
                "experiment needs",
                "next": "volley rm NAME, for one that is over",
            }
        status = head.ask("status")
        assert [record["name"] for record in status["experiments"]] == ["old"]
        assert status["head"]["disk_warning"].startswith("nothing can be submitted below 5 GiB")
        assert 0 < LEAST - GIB - status["head"]["disk_free_bytes"] < MEBIBYTE
