"""What the results account bills after a day of training: the proxy before Azurite counts it."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace

import pytest

from head.saved_database import COPIES
from rehearsal.azure.blob.billing import Account, BlobRequest, Retention
from rehearsal.azure.blob.blob_storage import BlobStorage
from tests.head.results.cluster import KEY, Cluster
from tests.infra.declared_stack import declare_stack

pytestmark = pytest.mark.slow

START = 1_780_272_000.0
STEP_S, HOURS = 1800.0, 24
CHECKPOINT = 200_000
"""Sizes are a hundredth of a day of Pong's: a database of 240 MB, checkpoints of 20 MB."""
METRICS = """
create table metrics (key text, value real, timestamp bigint, run text, step bigint,
                      primary key (key, timestamp, step, run, value));
create index by_run on metrics (run, key, step);
"""


@dataclass(frozen=True)
class Day:
    """A day of training, saved every STEP_S."""

    requests: list[tuple[float, BlobRequest]]
    """With the time of each."""
    stored: dict[str, int]
    """Sizes of the blobs at the end."""
    on_the_head: int
    """Bytes of the database and the runs at the end."""

    def account(self, retention: Retention) -> Account:
        """Returns the account as it would be after the day with this retention."""
        account = Account(retention, now=START)
        for time, request in self.requests:
            account.pass_time(time)
            account.apply(request)
        return account


@pytest.fixture(scope="module")
def day(storage: BlobStorage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    storage.create_container("results", "day")
    cluster = Cluster(storage, "day", tmp_path_factory.mktemp("day"))
    database = cluster.database
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(METRICS)
    requests: list[tuple[float, BlobRequest]] = []
    for step in range(int(HOURS * 3600 / STEP_S)):
        now = START + step * STEP_S
        vars(cluster.results)["time"] = SimpleNamespace(time=lambda now=now: now, monotonic=float)
        train(cluster, step)
        assert cluster.save(at_once=False)
        seen = len(requests)
        through = [r for r in storage.requests("results") if r.url.startswith("/day/")]
        requests += [(now, request) for request in through[seen:]]
    stored = {blob.name: blob.size for blob in cluster.blobs.list_blobs()}
    files = [database, *(path for path in (cluster.home / "runs").rglob("*") if path.is_file())]
    yield Day(requests, stored, sum(path.stat().st_size for path in files))
    cluster.blobs.close()


def train(cluster: Cluster, step: int) -> None:
    """Writes what a training writes until its next save."""
    rows = [
        (f"env_runners/metric_{row}", random.random(), START + step, "0" * 32, step)
        for row in range(180)
    ]
    with closing(sqlite3.connect(cluster.database)) as database, database:
        database.executemany("insert into metrics values (?, ?, ?, ?, ?)", rows)
    for name, size in {"progress.csv": 1000, "driver_log.txt": 4000}.items():
        path = cluster.write_run(f"a/{name}", "") if step == 0 else run(cluster) / name
        with path.open("a") as file:
            file.write("x" * size)
    cluster.write_run(f"a/checkpoints/checkpoint_{step}/weights", "w" * CHECKPOINT)
    if step > 3:
        rmtree(run(cluster) / f"checkpoints/checkpoint_{step - 4}")


def run(cluster: Cluster) -> Path:
    return cluster.home / "runs" / KEY / "runs/a"


@pytest.fixture(scope="module")
def declared() -> Retention:
    stack = declare_stack()
    kinds = ("StorageAccount", "BlobServiceProperties", "ManagementPolicy")
    return Retention.declared(*(stack.one(kind) for kind in kinds))


def test_the_account_counts_what_azurite_has(day: Day, declared: Retention) -> None:
    current = [blob for blob in day.account(declared).kept if blob.state == "current"]
    assert {blob.name.removeprefix("day/"): blob.size for blob in current} == day.stored


def test_a_day_bills_at_most_twice_the_live_bytes(day: Day, declared: Retention) -> None:
    account = day.account(declared)
    assert account.billed_bytes <= 2 * account.live_bytes
    # Nor more than twice what the head has, with all copies of the database.
    assert account.billed_bytes <= 2 * day.on_the_head


def test_versions_or_soft_delete_would_bill_many_times_that(day: Day, declared: Retention) -> None:
    for kept in ({"versioning": True}, {"soft_delete_days": 7.0}, {"soft_delete_days": 1.0}):
        account = day.account(replace(declared, **kept))
        assert account.billed_bytes > 3 * account.live_bytes


def test_a_log_is_uploaded_once(day: Day) -> None:
    for name in ("progress.csv", "driver_log.txt"):
        sent = [r.length for _, r in day.requests if f"{name}?" in r.url or r.url.endswith(name)]
        assert sum(sent) == day.stored[f"runs/{KEY}/runs/a/{name}"]


def test_a_day_has_a_copy_of_the_database_for_each_hour(day: Day) -> None:
    copies = [name for name in day.stored if name.startswith(COPIES)]
    assert len(copies) == HOURS
