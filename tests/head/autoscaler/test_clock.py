"""A clock that is set costs no worker, and a fault of all workers never all of them at once."""

from __future__ import annotations

import pytest

from infra.stack.idle_workers import WorkerLimits
from tests.head.autoscaler.cluster import Cluster
from tests.head.autoscaler.conftest import MakeCluster

pytestmark = pytest.mark.slow

MINUTE = 60
FOUR = WorkerLimits(4, 4, 5)


def made_late(make_cluster: MakeCluster) -> Cluster:
    """Returns a cluster whose roles stay in effect when its clock is set back by an hour."""
    cluster = make_cluster(FOUR)
    cluster.gcs.clock.set(120 * MINUTE)
    return cluster


def never_joining(make_cluster: MakeCluster) -> Cluster:
    cluster = made_late(make_cluster)
    with cluster.cloud.faults.changed() as faults:
        faults.never_join = 1000
    cluster.update(MINUTE)
    assert len(cluster.there) == 4
    return cluster


@pytest.mark.parametrize("ahead_s", [20 * MINUTE + 1, 60 * MINUTE, -60 * MINUTE])
def test_workers_that_boot_stay_when_the_heads_clock_is_set(
    make_cluster: MakeCluster, ahead_s: float
) -> None:
    cluster = never_joining(make_cluster)
    before = cluster.there
    cluster.gcs.clock.set(ahead_s)
    cluster.update(18 * MINUTE, every_s=30)
    assert cluster.there == before


def test_workers_at_work_stay_when_the_heads_clock_is_set(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(FOUR)
    cluster.update(5 * MINUTE)
    before = cluster.gcs.joined()
    assert len(before) == 4
    cluster.gcs.busy = set(before)
    cluster.gcs.clock.set(60 * MINUTE)
    cluster.update(5 * MINUTE)
    assert cluster.there == before


def test_of_workers_that_never_join_at_most_half_are_deleted_at_once(
    make_cluster: MakeCluster,
) -> None:
    cluster = never_joining(make_cluster)
    first = set(cluster.there)
    cluster.update(19 * MINUTE, every_s=30)
    assert set(cluster.there) == first
    cluster.update(50)
    assert len(first & set(cluster.there)) == 2
    cluster.update(20 * MINUTE, every_s=30)
    assert not first & set(cluster.there)
