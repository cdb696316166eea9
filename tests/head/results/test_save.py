"""Saving to a real Blob service: the faults that occur, and the results saved despite them."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from tests.head.results.cluster import KEY, Cluster, Make

pytestmark = pytest.mark.slow

# The database


def test_a_database_that_changed_is_saved_again(cluster: Cluster) -> None:
    for value in (1, 2):
        cluster.log_metric(value)
        assert cluster.save()
    assert cluster.saved_metrics() == [1, 2]


@pytest.mark.parametrize("saves_before", [0, 1])
def test_a_lost_answer_does_not_end_all_saving(cluster: Cluster, saves_before: int) -> None:
    for value in range(saves_before):
        cluster.log_metric(value)
        assert cluster.save()
    cluster.log_metric(10)
    cluster.lose_once("PUT", "mlflow.db")
    assert not cluster.save()
    cluster.log_metric(11)
    assert cluster.save()
    assert cluster.saved_metrics()[-2:] == [10, 11]


def test_a_crash_before_the_etag_is_known_does_not_end_all_saving(cluster: Cluster) -> None:
    cluster.log_metric(1)
    cluster.save()
    (cluster.state / "mlflow.db.etag").unlink()
    cluster.log_metric(2)
    assert cluster.save()
    assert cluster.saved_metrics() == [1, 2]


def test_a_database_that_somebody_removed_is_saved_again(cluster: Cluster) -> None:
    cluster.log_metric(1)
    cluster.save()
    cluster.blobs.delete_blob("mlflow.db.gz")
    cluster.log_metric(2)
    assert cluster.save()
    assert cluster.saved_metrics() == [1, 2]


def test_two_clusters_do_not_overwrite_each_other(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = make(), make()
    first.log_metric(1)
    first.save()
    second.results.restore(second.blobs)
    first.log_metric(2)
    assert first.save()
    second.log_metric(3)
    assert not second.save()
    assert "two clusters cannot share one results account" in capfd.readouterr().err
    assert first.saved_metrics() == [1, 2]


# The program


@pytest.mark.parametrize(
    ("verb", "outcome", "exit_code"),
    [
        ("save", "SAVED", 0),
        ("save-due", "SAVED", 0),
        ("save-due", "LATER", 0),
        ("save", "FAILED", 1),
    ],
)
def test_only_a_save_of_everything_is_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, verb: str, outcome: str, exit_code: int
) -> None:
    asked: list[bool] = []

    def save(_: object, at_once: bool) -> object:
        asked.append(at_once)
        return cluster.results.Outcome[outcome]

    monkeypatch.setenv("RESULTS_CONTAINER", "results")
    monkeypatch.setattr(cluster.results, "container", lambda _: cluster.blobs)
    monkeypatch.setattr(cluster.results, "save", save)
    monkeypatch.setattr(cluster.results, "count_if_due", lambda: None)
    assert cluster.results.main(verb) == exit_code
    assert asked == [verb == "save"]
    assert (cluster.state / "saved-at").exists() == (outcome == "SAVED")


# The runs


def test_files_that_changed_are_saved_and_what_is_being_written_is_not(cluster: Cluster) -> None:
    progress = cluster.write_run("a/progress.csv", "1\n")
    cluster.write_run("a/checkpoints/.checkpoint_1.77/weights", "half")
    cluster.save()
    assert cluster.saved_runs() == ["a/progress.csv"]
    progress.write_text("1\n2\n")
    assert cluster.save()
    assert cluster.blobs.download_blob(f"runs/{KEY}/runs/a/progress.csv").readall() == b"1\n2\n"


def test_what_is_removed_is_removed_from_the_account(make: Make) -> None:
    first, second = make(), make()
    for number in (1, 2, 3):
        first.write_run(f"a/checkpoints/checkpoint_{number}/weights", "learned")
    first.save()
    rmtree(first.home / "runs" / KEY / "runs/a/checkpoints/checkpoint_1")
    first.save()
    second.restore_runs()
    rmtree(second.home / "runs" / KEY / "runs/a/checkpoints/checkpoint_2")
    assert second.save()
    assert second.saved_runs() == ["a/checkpoints/checkpoint_3/weights"]


def test_a_removed_checkpoint_leaves_no_folders_that_each_save_would_read(cluster: Cluster) -> None:
    for number in (1, 2):
        cluster.write_run(f"a/checkpoints/checkpoint_{number}/algorithm/learner/state", "learned")
    cluster.save()
    rmtree(cluster.home / "runs" / KEY / "runs/a/checkpoints/checkpoint_1")
    cluster.save()
    (marks,) = cluster.state.rglob("checkpoints")
    assert [path.name for path in marks.iterdir()] == ["checkpoint_2"]


def test_a_file_may_become_a_folder_and_a_folder_a_file(make: Make) -> None:
    first, second = make(), make()
    grows = first.write_run("a/output/grows", "file")
    shrinks = first.write_run("a/output/shrinks/x", "folder").parent
    assert first.save()
    grows.unlink()
    first.write_run("a/output/grows/x", "folder")
    rmtree(shrinks)
    shrinks.write_text("file")
    assert first.save()
    assert first.saved_runs() == ["a/output/grows/x", "a/output/shrinks"]
    second.restore_runs()
    assert (second.home / "runs" / KEY / "runs/a/output/shrinks").read_text() == "file"


def test_what_was_restored_is_not_saved_again(make: Make) -> None:
    first, second = make(), make()
    first.write_run("a/progress.csv", "1\n")
    first.save()
    second.restore_runs()
    asked: list[str] = []
    second.before_request = lambda request: asked.append(request.method)
    second.save()
    assert "PUT" not in asked


def test_the_database_does_not_wait_for_the_runs(cluster: Cluster) -> None:
    cluster.write_run("a/progress.csv", "1\n")
    cluster.log_metric(1)
    asked: list[str] = []
    cluster.before_request = lambda request: asked.append(request.url)
    cluster.save()
    assert "mlflow.db" in asked[0]


def test_runs_are_saved_where_the_database_cannot_be(make: Make) -> None:
    first, second = make(), make()
    first.log_metric(1)
    first.save()
    second.log_metric(2)
    second.write_run("a/progress.csv", "1\n")
    assert not second.save()
    assert second.saved_runs() == ["a/progress.csv"]


def test_the_database_is_saved_where_the_runs_cannot_be(cluster: Cluster) -> None:
    cluster.write_run("a/progress.csv", "1\n")
    cluster.lose_once("PUT", "/runs/")
    cluster.log_metric(1)
    assert not cluster.save()
    assert cluster.saved_metrics() == [1]


def test_what_cannot_be_saved_keeps_no_other_file_from_it(cluster: Cluster) -> None:
    output = cluster.write_run("a/output/first", "1").parent
    os.mkfifo(output / "pipe")  # Its reader would never return.
    Path(os.fsdecode(bytes(output) + b"/not\xffUTF-8")).touch()
    cluster.write_run("b/progress.csv", "1\n")
    assert cluster.save()
    assert cluster.saved_runs() == ["a/output/first", "b/progress.csv"]


@pytest.mark.parametrize("what", ["folders", "files"])
def test_checkpoints_that_are_removed_meanwhile_end_no_save(cluster: Cluster, what: str) -> None:
    for name in ("checkpoint_1/algorithm", "checkpoint_1/weights", "checkpoint_2/weights"):
        cluster.write_run(f"a/checkpoints/{name}", name)
    checkpoints = cluster.home / "runs" / KEY / "runs/a/checkpoints"

    def prune(request: Any) -> None:
        """Removes the other checkpoints while the first one is saved."""
        saving = [c for c in checkpoints.iterdir() if f"/{c.name}/" in request.url]
        for other in set(checkpoints.iterdir()) - set(saving) if saving else ():
            rmtree(other) if what == "folders" else (other / "weights").unlink(missing_ok=True)

    cluster.before_request = prune
    cluster.write_run("b/progress.csv", "1\n")
    cluster.log_metric(1)
    assert cluster.save()
    assert "b/progress.csv" in cluster.saved_runs()
    assert cluster.saved_metrics() == [1]


def test_what_comes_after_a_save_has_begun_is_saved_by_the_next_one(cluster: Cluster) -> None:
    cluster.write_run("a/progress.csv", "1\n")
    running = os.open(cluster.state, os.O_RDONLY)
    try:
        fcntl.flock(running, fcntl.LOCK_EX)
        last = threading.Thread(target=cluster.save)
        last.start()
        time.sleep(0.3)
        assert cluster.saved_runs() == []
        cluster.write_run("a/finished", "")
    finally:
        os.close(running)
    last.join(30)
    assert cluster.saved_runs() == ["a/finished", "a/progress.csv"]
