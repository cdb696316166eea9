"""Restoring from a real Blob service, so that the next cluster continues with the results."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from shutil import rmtree

import pytest

from head import blob, saved_database
from head.disk import LEAST
from head.files import replace
from head.identity.client import IdentityError
from tests.head.relocated import relocated
from tests.head.results.cluster import KEY, Cluster, Make
from tests.payload.small_disk import small_disk

pytestmark = pytest.mark.slow


def test_the_next_cluster_continues_with_the_database(make: Make) -> None:
    first, second = make(), make()
    first.log_metric(1)
    first.save()
    second.results.restore(second.blobs)
    second.log_metric(2)
    assert second.save()
    assert second.saved_metrics() == [1, 2]


def test_a_restore_that_was_interrupted_is_repeated(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make(), make()
    first.log_metric(1)
    first.save()

    def write_and_fail(path: Path, content: bytes, mode: int) -> None:
        replace(path, content, mode)
        raise OSError("the power went")

    with monkeypatch.context() as crash:
        crash.setattr(saved_database, "replace", write_and_fail)
        with pytest.raises(OSError, match="power"):
            second.results.restore(second.blobs)
    second.results.restore(second.blobs)
    second.log_metric(2)
    assert second.save()
    assert second.saved_metrics() == [1, 2]


def test_runs_are_restored_whole_after_an_interruption(make: Make) -> None:
    first, second = make(), make()
    paths = ["a/checkpoints/checkpoint_1/weights", "a/experiment.yaml", "a/progress.csv"]
    for path in paths:
        first.write_run(path, path)
    first.save()
    second.lose_once("GET", "a/experiment.yaml")
    with pytest.raises(IdentityError, match="connection reset"):
        second.restore_runs()
    assert not list((second.home / "runs").iterdir())
    second.restore_runs()
    for path in paths:
        assert (second.home / "runs" / KEY / "runs" / path).read_text() == path
    assert second.save()
    assert second.saved_runs() == paths


def test_the_best_checkpoint_is_still_known(make: Make) -> None:
    first, second = make(), make()
    first.write_run("a/checkpoints/checkpoint_1/weights", "learned")
    first.write_run("a/checkpoints/checkpoint_2/weights", "unlearned")
    runs = Path("runs", KEY, "runs")
    best = runs / "a/checkpoints/best"
    (first.home / best).symlink_to("checkpoint_1")
    first.save()
    second.restore_runs()
    assert (second.home / best / "weights").read_text() == "learned"


def test_runs_of_this_machine_are_left_as_they_are(make: Make) -> None:
    first, second = make(), make()
    first.write_run("a/progress.csv", "old")
    first.save()
    mine = second.write_run("a/progress.csv", "mine")
    second.restore_runs()
    assert mine.read_text() == "mine"


def test_a_role_that_is_not_known_yet_is_waited_for(
    make: Make, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = make(), make()
    first.log_metric(1)
    first.save()
    monkeypatch.setattr(blob, "PAUSE_S", 0.01)
    second.token.refused = 2
    blob.retry("mlflow.db", partial(second.results.restore, second.blobs))
    assert second.database.exists()
    assert capfd.readouterr().out.count("mlflow.db: ") == 2


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    from azure.core.exceptions import AzureError

    monkeypatch.setattr(blob, "PAUSE_S", 0.01)
    monkeypatch.setattr(blob, "RETRY_FOR_S", 0.05)

    def refuse() -> None:
        raise AzureError("")

    with pytest.raises(AzureError):
        blob.retry("runs", refuse)


def test_the_next_cluster_has_the_notebooks(make: Make) -> None:
    first, second = make(), make()
    first.restore_runs("notebooks")
    notebooks = Path("runs/notebooks")
    assert not (first.home / notebooks).exists()
    (first.home / notebooks / "plots").mkdir(parents=True)
    (first.home / notebooks / "plots/returns.ipynb").write_text("{}")
    first.save()
    second.restore_runs("notebooks")
    assert (second.home / notebooks / "plots/returns.ipynb").read_text() == "{}"


def test_runs_come_back_where_they_fit_and_are_known_as_saved(cluster: Cluster) -> None:
    weights = cluster.write_run("a/checkpoints/checkpoint_1/weights", "learned")
    assert cluster.save()
    rmtree(cluster.home / "runs" / KEY)
    reason = "the head's disk has 5.0 GiB left, and the runs have 0.0 GiB"
    with small_disk(cluster.home, LEAST):
        (cluster.home / "runs").mkdir()
        with pytest.raises(IdentityError, match=reason):
            cluster.restore_runs()
    cluster.restore_runs()
    assert weights.read_text() == "learned"
    assert relocated("head.marks", cluster.home.parents[2]).is_saved(weights)


def test_a_link_that_an_experiment_has_left_leads_nowhere(make: Make, tmp_path: Path) -> None:
    first, second = make(), make()
    first.write_run("a/weights", "learned")
    first.save()
    outside = tmp_path / "outside"
    outside.mkdir()
    (second.home / f"runs/.{KEY}").symlink_to(outside)
    second.restore_runs()
    assert list(outside.iterdir()) == []
    assert (second.home / "runs" / KEY / "runs/a/weights").read_text() == "learned"
