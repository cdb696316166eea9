"""The autoscaler requests missing machines again, no more than those, at increasing intervals."""

from __future__ import annotations

import itertools

import pytest

from infra.stack.idle_workers import WorkerLimits
from tests.head.autoscaler.cluster import Cluster
from tests.head.autoscaler.conftest import MakeCluster
from tests.rehearsal.azure.resources.scale_set_cloud import SCALE_SET

pytestmark = pytest.mark.slow

MINUTE = 60
FOUR = WorkerLimits(4, 4, 5)
CODES = ("SkuNotAvailable", "AllocationFailed", "OverconstrainedAllocationRequest")
ANY_AZURE = list(itertools.product([False, True], repeat=3))
"""Behavior that Azure's documents leave open: capacity_is_goal, keeps_capacity, leaves_failed."""


def most_machines(cluster: Cluster, minutes: int) -> int:
    """Returns the highest number of machines at any time in the next minutes."""
    most = 0
    for _ in range(minutes * 2):
        cluster.update(30, every_s=30)
        most = max(most, len(cluster.there))
    return most


def capacity_for(cluster: Cluster, machines: int | None, code: str = CODES[1]) -> None:
    with cluster.cloud.faults.changed() as faults:
        faults.machines, faults.sold_out_code = machines, code


@pytest.mark.parametrize("code", CODES)
def test_what_is_sold_out_is_asked_for_after_1_2_4_8_and_15_minutes(
    make_cluster: MakeCluster, code: str
) -> None:
    cluster = make_cluster(FOUR)
    capacity_for(cluster, 0, code)
    asked: list[float] = []
    for _ in range(47 * 6):
        before = cluster.cloud.count("PATCH")
        cluster.update()
        if cluster.cloud.count("PATCH") > before:
            asked.append(cluster.gcs.clock.now)
    pauses = [round((later - sooner) / 60) for sooner, later in itertools.pairwise(asked)]
    assert pauses == [1, 2, 4, 8, 15, 15]


def test_the_report_says_how_many_are_missing_why_and_when_they_are_asked_for_again(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(FOUR)
    capacity_for(cluster, 1)
    cluster.update(MINUTE)
    report = cluster.report()
    assert (report["wanted"], report["missing"], report["there"]) == (4, 3, ["worker0"])
    assert report["why"].startswith("AllocationFailed: Allocation failed.")
    assert 0 < report["next_try"] - cluster.gcs.clock.now <= MINUTE


def test_a_subscription_without_spot_is_told_what_to_change(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(FOUR)
    capacity_for(cluster, 0, "AzureSpotFeatureNotEnabledForSubscription")
    cluster.update(10 * MINUTE)
    assert "pulumi config set workerSpot false" in cluster.report()["why"]
    assert cluster.cloud.count("PATCH") == 1


@pytest.mark.parametrize(("goal", "keeps", "leaves"), ANY_AZURE)
def test_exactly_what_is_missing_comes_once_azure_has_it(
    make_cluster: MakeCluster, goal: bool, keeps: bool, leaves: bool
) -> None:
    cluster = make_cluster(FOUR)
    with cluster.cloud.faults.changed() as faults:
        faults.capacity_is_goal, faults.keeps_capacity, faults.leaves_failed = goal, keeps, leaves
    capacity_for(cluster, 2)
    cluster.update(30 * MINUTE, every_s=30)
    assert len(cluster.gcs.joined()) == 2
    capacity_for(cluster, None)
    # What it is asked for beyond a goal is deleted again.
    assert most_machines(cluster, 40) == 4 or (goal and keeps)
    assert len(cluster.gcs.joined()) == len(cluster.there) == 4


@pytest.mark.parametrize(("goal", "keeps"), list(itertools.product([False, True], repeat=2)))
def test_an_evicted_worker_is_replaced_by_one(
    make_cluster: MakeCluster, goal: bool, keeps: bool
) -> None:
    cluster = make_cluster(FOUR)
    with cluster.cloud.faults.changed() as faults:
        faults.capacity_is_goal, faults.keeps_capacity = goal, keeps
    cluster.update(5 * MINUTE)
    cluster.cloud.evict("worker1")
    assert most_machines(cluster, 20) == 4 or (goal and keeps)
    assert len(cluster.there) == 4
    assert "worker1" not in cluster.there


@pytest.mark.parametrize("keeps", [False, True])
def test_an_evicted_worker_is_replaced_at_once(make_cluster: MakeCluster, keeps: bool) -> None:
    cluster = make_cluster(FOUR)
    with cluster.cloud.faults.changed() as faults:
        faults.keeps_capacity = keeps
    cluster.update(5 * MINUTE)
    cluster.cloud.evict("worker1")
    cluster.update(MINUTE)
    assert len(cluster.there) == 4


def test_workers_come_at_once_where_others_were_deleted_by_name(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(WorkerLimits(0, 4, 5))
    cluster.gcs.demand = [{"CPU": 2.0}] * 3
    cluster.update(5 * MINUTE)
    assert len(cluster.there) == 3
    cluster.gcs.demand = []
    cluster.update(15 * MINUTE)
    assert (cluster.there, cluster.cloud.capacity) == ([], 3)
    cluster.gcs.demand = [{"CPU": 2.0}]
    cluster.update(MINUTE)
    assert len(cluster.there) == 1


def test_a_quota_that_is_used_up_is_asked_again_later(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(FOUR)
    cluster.cloud.azure.quota = {"lowPriorityCores": 4}
    cluster.update(MINUTE)
    assert "quota" in cluster.report()["why"]
    cluster.cloud.azure.quota = {}
    cluster.update(5 * MINUTE)
    assert len(cluster.there) == 4


def test_a_failed_machine_is_deleted_and_replaced(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(WorkerLimits(2, 4, 5))
    with cluster.cloud.faults.changed() as faults:
        faults.provisioning_fails = 1
    cluster.update(40)
    assert "OSProvisioningTimedOut" in cluster.report()["why"]
    cluster.update(10 * MINUTE)
    assert len(cluster.gcs.joined()) == len(cluster.there) == 2


def test_a_machine_that_never_joins_has_20_minutes_and_is_replaced(
    make_cluster: MakeCluster,
) -> None:
    cluster = make_cluster(WorkerLimits(1, 4, 5))
    with cluster.cloud.faults.changed() as faults:
        faults.never_join = 1
    cluster.update(20 * MINUTE)
    assert cluster.there == ["worker0"]
    cluster.update(MINUTE)
    assert cluster.there == []
    assert cluster.report()["why"] == "worker0 did not join Ray in 20 min"
    cluster.update(2 * MINUTE)
    assert cluster.gcs.joined() == ["worker1"]


def test_machines_that_never_join_are_made_ever_less_often(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(WorkerLimits(1, 4, 5))
    with cluster.cloud.faults.changed() as faults:
        faults.never_join = 1000
    cluster.update(6 * 60 * MINUTE, every_s=MINUTE)
    # Two for each machine: without machines the capacity is set to 0 first.
    assert cluster.cloud.count("PATCH") <= 24


def test_of_several_sizes_azure_takes_the_first_that_it_has(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(FOUR)
    azure = cluster.cloud.azure
    inputs = azure.resources()[SCALE_SET].inputs
    first, second = "Standard_D4as_v5", "Standard_D4s_v5"
    ranks = [{"name": size, "rank": rank} for rank, size in enumerate((first, second))]
    sku = {**inputs["sku"], "name": "Mix"}
    azure.update(SCALE_SET, {**inputs, "sku": sku, "skuProfile": {"vmSizes": ranks}})
    with cluster.cloud.faults.changed() as faults:
        faults.sold_out_sizes = (first,)
    cluster.update(5 * MINUTE)
    report = cluster.report()
    assert (report["missing"], report["sizes"]) == (0, {second: 4})

    with cluster.cloud.faults.changed() as faults:
        faults.sold_out_sizes = ()
    cluster.cloud.evict(report["there"][0])
    cluster.update(5 * MINUTE)
    assert cluster.report()["sizes"] == {second: 3, first: 1}
