"""The autoscaler adds workers when something waits for them and removes idle ones."""

from __future__ import annotations

import pytest
from ray.autoscaler._private import providers

from infra.stack.idle_workers import WorkerLimits
from tests.head.autoscaler.cluster import Cluster
from tests.head.autoscaler.conftest import HEARTBEAT_S, MakeCluster

pytestmark = pytest.mark.slow

CPU = {"CPU": 1.0}
MINUTE = 60


def test_no_machine_is_started_that_nobody_asked_for(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.update(10 * MINUTE, every_s=30)
    assert cluster.there == []
    assert cluster.cloud.count("PATCH") == 0


def test_waiting_env_runners_bring_as_many_workers_as_they_fill(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.gcs.demand = [CPU] * 5
    cluster.update(MINUTE)
    assert (cluster.there, cluster.cloud.capacity) == (["worker0", "worker1", "worker2"], 3)
    assert cluster.cloud.count("PATCH") == 1


def test_there_are_never_more_than_max_workers(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.gcs.demand = [CPU] * 50
    cluster.update(5 * MINUTE)
    assert len(cluster.there) == 4


@pytest.mark.parametrize(
    ("limits", "count"), [(WorkerLimits(2, 4, 5), 2), (WorkerLimits(4, 4, 5), 4)]
)
def test_min_workers_come_without_demand_and_stay_idle(
    make_cluster: MakeCluster, limits: WorkerLimits, count: int
) -> None:
    cluster = make_cluster(limits)
    cluster.update(MINUTE)
    first = cluster.there
    cluster.update(30 * MINUTE, every_s=30)
    assert cluster.there == first
    assert len(first) == count


def test_idle_workers_go_after_the_idle_time_and_those_at_work_stay(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster()
    cluster.gcs.demand = [CPU] * 6
    cluster.update(MINUTE)
    cluster.gcs.demand, cluster.gcs.busy = [], {"worker1"}
    cluster.update(4 * MINUTE)
    assert len(cluster.there) == 3
    cluster.update(2 * MINUTE)
    assert cluster.there == ["worker1"]
    cluster.update(30 * MINUTE, every_s=30)
    assert cluster.there == ["worker1"]


def test_a_new_maximum_counts_from_the_next_update_on(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(WorkerLimits(4, 4, 5))
    cluster.update(MINUTE)
    cluster.set_limits(WorkerLimits(0, 1, 5))
    cluster.update(MINUTE)
    assert len(cluster.there) == 1


def test_a_capacity_that_somebody_has_raised_is_not_lowered(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(capacity=3)
    cluster.gcs.busy = {"worker0", "worker1", "worker2"}
    cluster.update(30 * MINUTE, every_s=30)
    assert len(cluster.there) == 3
    assert cluster.cloud.count("PATCH") == 0


def test_a_worker_whose_ray_has_ended_is_replaced_after_the_heartbeat_timeout(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(WorkerLimits(1, 4, 5))
    cluster.update(MINUTE)
    cluster.gcs.lost = {"worker0"}
    cluster.update(HEARTBEAT_S - 30)
    assert cluster.there == ["worker0"]
    cluster.update(2 * MINUTE)
    assert cluster.there == ["worker1"]


def test_workers_outlive_a_gcs_that_has_forgotten_them(make_cluster: MakeCluster) -> None:
    limits = WorkerLimits(0, 4, 60)
    before = make_cluster(limits, capacity=2)
    before.update(40 * MINUTE, every_s=30)
    providers._clear_provider_cache()  # Ray's monitor is a new process.
    before.gcs.forgotten = set(before.there)
    after = Cluster(before.cloud, before.gcs, before.config.parent, limits)
    after.update(10 * MINUTE, every_s=30)
    before.gcs.forgotten = set()
    after.update(5 * MINUTE)
    assert after.there == ["worker0", "worker1"]


def test_the_report_says_who_is_wanted_there_coming_and_leaving(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(WorkerLimits(0, 4, 1))
    cluster.gcs.demand = [CPU] * 4
    seen = []
    for _ in range(12):
        cluster.update()
        report = cluster.report()
        names = tuple(tuple(report[key]) for key in ("there", "coming", "leaving"))
        if (now := (report["wanted"], *names, report["missing"])) not in seen:
            seen.append(now)
        cluster.gcs.demand = []
    both = ("worker0", "worker1")
    assert seen == [
        (2, (), (), (), 2),
        (2, both, (), (), 0),
        (0, (), (), both, 0),
        (0, (), (), (), 0),
    ]
