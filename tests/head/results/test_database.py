"""MLflow's database in the results account: how often it is saved, and what is kept of it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from head import database_snapshot, saved_database
from head.saved_database import COPIES, COPY, SavedDatabase, too_old
from tests.head.results.cluster import Cluster, Make

NOON = datetime(2026, 6, 10, 12, tzinfo=UTC)


def save(cluster: Cluster, at: datetime, at_once: bool = False) -> bool:
    database = SavedDatabase(cluster.database, cluster.state, cluster.blobs)
    return database.save(at.timestamp(), at_once)


def copies(cluster: Cluster) -> list[str]:
    return [*cluster.blobs.list_blob_names(name_starts_with=COPIES)]


def damage(cluster: Cluster, position: int) -> None:
    with (cluster.database).open("r+b") as file:
        file.seek(position)
        file.write(b"\xff" * 4096)


# What is saved


@pytest.mark.slow
@pytest.mark.parametrize("position", [0, 4096], ids=["header", "page"])
def test_a_damaged_database_replaces_no_good_one(
    cluster: Cluster, capfd: pytest.CaptureFixture[str], position: int
) -> None:
    cluster.log_metric(1)
    assert cluster.save()
    damage(cluster, position)
    cluster.write_run("a/weights", "1")
    assert not cluster.save()
    assert "database" in capfd.readouterr().err
    assert cluster.saved_metrics() == [1]
    assert cluster.saved_runs() == ["a/weights"]


def test_a_large_database_takes_longer_than_a_lock_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_snapshot, "SNAPSHOT_S", -1.0)
    database, copy = tmp_path / "mlflow.db", tmp_path / "copy.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE metrics (value REAL)")
        connection.commit()
    database_snapshot.snapshot(database, copy)
    database_snapshot.check(copy)


@pytest.mark.slow
def test_a_locked_database_is_not_waited_for_without_end(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster.log_metric(1)
    monkeypatch.setattr(database_snapshot, "SNAPSHOT_S", 0.1)
    with closing(sqlite3.connect(cluster.database)) as other:
        other.execute("begin exclusive")
        assert not cluster.save()
    assert "was locked for" in capfd.readouterr().err
    assert cluster.save()


@pytest.mark.slow
def test_what_a_killed_save_left_is_removed(cluster: Cluster) -> None:
    cluster.log_metric(1)
    (cluster.state / ".mlflow.db.snapshot").mkdir()
    (cluster.state / ".mlflow.db.snapshot/packed").write_text("half")
    assert cluster.save()
    assert not (cluster.state / ".mlflow.db.snapshot").exists()


@pytest.mark.slow
def test_a_database_of_an_earlier_version_is_continued_and_replaced(make: Make) -> None:
    first, second = make(), make()
    first.log_metric(1)
    first.blobs.upload_blob("mlflow.db", (first.database).read_bytes())
    second.results.restore(second.blobs)
    second.log_metric(2)
    assert second.save()
    assert second.saved_metrics() == [1, 2]
    assert "mlflow.db" not in [*second.blobs.list_blob_names()]


@pytest.mark.slow
def test_a_saved_database_that_is_damaged_is_not_restored(make: Make) -> None:
    first, second = make(), make()
    first.log_metric(1)
    first.save()
    packed = first.blobs.download_blob("mlflow.db.gz").readall()
    first.blobs.upload_blob("mlflow.db.gz", packed[:-20], overwrite=True)
    with pytest.raises(database_snapshot.DamagedError):
        second.results.restore(second.blobs)
    assert not (second.database).exists()


# When


@pytest.mark.slow
def test_a_large_database_is_saved_when_it_is_due_and_at_every_end(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.log_metric(1)
    size = (cluster.database).stat().st_size
    monkeypatch.setattr(saved_database, "RATE", size / 100)
    assert save(cluster, NOON)
    cluster.log_metric(2)
    assert not save(cluster, NOON + timedelta(seconds=90))
    assert cluster.saved_metrics() == [1]
    assert save(cluster, NOON + timedelta(seconds=91), at_once=True)
    assert cluster.saved_metrics() == [1, 2]
    cluster.log_metric(3)
    assert save(cluster, NOON + timedelta(seconds=200))
    cluster.log_metric(4)
    assert save(cluster, NOON - timedelta(days=1)), "a clock that was set back delays nothing"


@pytest.mark.slow
def test_a_database_that_is_not_due_is_not_a_failure(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.log_metric(1)
    cluster.save()
    monkeypatch.setattr(saved_database, "RATE", 1)
    cluster.log_metric(2)
    outcome = cluster.results.Outcome
    assert cluster.results.save(cluster.blobs, at_once=False) == outcome.LATER
    assert cluster.results.save(cluster.blobs, at_once=True) == outcome.SAVED


# The copies


@pytest.mark.slow
def test_the_first_state_of_each_hour_is_copied_within_the_account(cluster: Cluster) -> None:
    moments = [NOON, NOON + timedelta(minutes=30), NOON + timedelta(hours=1)]
    for value, moment in enumerate(moments):
        cluster.log_metric(value)
        assert save(cluster, moment)
    assert copies(cluster) == [f"{COPIES}2026-06-10T{hour}.db.gz" for hour in (12, 13)]
    assert cluster.metrics_of(copies(cluster)[0]) == [0]
    assert cluster.metrics_of(copies(cluster)[1]) == [0, 1, 2]
    cluster.log_metric(3)
    assert save(cluster, NOON + timedelta(days=30))
    assert copies(cluster) == [f"{COPIES}2026-07-10T12.db.gz"]


@pytest.mark.slow
def test_a_person_puts_a_copy_back(cluster: Cluster) -> None:
    for value in range(2):
        cluster.log_metric(value)
        assert save(cluster, NOON + timedelta(hours=value))
    # As docs/azure.md says, in its order.
    (cluster.database).rename(cluster.database.with_name("mlflow.db.before"))
    copy = cluster.blobs.download_blob(copies(cluster)[0]).readall()
    cluster.blobs.upload_blob("mlflow.db.gz", copy, overwrite=True)
    cluster.results.restore(cluster.blobs)
    cluster.log_metric(2)
    assert cluster.save()
    assert cluster.saved_metrics() == [0, 2]


def test_the_last_day_is_kept_by_hour_and_the_last_week_by_day() -> None:
    hours = [NOON - timedelta(hours=hour) for hour in range(24 * 30)]
    names = [moment.strftime(COPY) for moment in hours] + [f"{COPIES}a person's.db.gz"]
    kept = {*names} - {*too_old(names, NOON)}
    days = [NOON.replace(hour=0) - timedelta(days=day) for day in range(7)]
    expected = {moment.strftime(COPY) for moment in [*hours[:25], *days]}
    assert kept == expected | {names[-1]}
