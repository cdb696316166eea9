"""No answer or failure of Azure costs a busy worker or creates a machine twice."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from head.autoscaler import scale_set_provider
from infra.stack.idle_workers import WorkerLimits
from rehearsal.azure.management.management_faults import Faults
from rehearsal.azure.resources.scale_set_machines import machines_of, with_machines
from tests.head.autoscaler.cluster import Cluster
from tests.head.autoscaler.conftest import MakeCluster
from tests.rehearsal.azure.resources.scale_set_cloud import SCALE_SET

pytestmark = pytest.mark.slow

MINUTE = 60
TWO = WorkerLimits(2, 4, 5)


def fault(cluster: Cluster, **values: int) -> None:
    with cluster.cloud.faults.changed() as faults:
        for name, value in values.items():
            setattr(faults, name, value)


def faults(cluster: Cluster) -> Faults:
    return cluster.cloud.faults.read()


def test_a_list_of_which_a_page_is_missing_changes_nothing(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(WorkerLimits(4, 4, 5))
    cluster.update(5 * MINUTE)
    before = cluster.there, cluster.cloud.capacity
    asked = cluster.cloud.count("PATCH"), cluster.cloud.count("POST")
    fault(cluster, lists_fail=1000, whole_pages=1)
    cluster.update(10 * MINUTE, every_s=30)
    assert (cluster.there, cluster.cloud.capacity) == before
    assert (cluster.cloud.count("PATCH"), cluster.cloud.count("POST")) == asked
    assert "InternalServerError" in cluster.report()["problem"]
    fault(cluster, lists_fail=0)
    cluster.update()
    assert cluster.report()["problem"] == ""


def test_a_growth_whose_answer_is_lost_is_not_done_twice(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(TWO)
    fault(cluster, lost_answers=1)
    cluster.update(5 * MINUTE)
    assert cluster.there == ["worker0", "worker1"]
    assert cluster.cloud.count("PATCH") == 1


def test_a_deletion_whose_answer_is_lost_is_done_once(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(TWO)
    cluster.update(MINUTE)
    fault(cluster, lost_answers=1)
    cluster.set_limits(WorkerLimits(0, 4, 1))
    cluster.update(5 * MINUTE)
    assert cluster.there == []


def test_a_scale_set_that_somebody_else_changes_is_read_again(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(TWO)
    fault(cluster, changed_between=2)
    cluster.update(30)
    assert len(cluster.there) == 2


@pytest.mark.parametrize("name", ["throttled", "forbidden"])
def test_ten_minutes_of_refusals_are_survived(make_cluster: MakeCluster, name: str) -> None:
    cluster = make_cluster(TWO)
    fault(cluster, **{name: 100_000}, retry_after_s=60)
    cluster.update(10 * MINUTE, every_s=30)
    assert cluster.there == []
    assert cluster.report()["problem"]
    fault(cluster, **{name: 0})
    cluster.update(2 * MINUTE)
    assert len(cluster.there) == 2


def test_a_few_throttled_requests_are_waited_for(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(TWO)
    fault(cluster, throttled=2, retry_after_s=5)
    cluster.update()
    assert len(cluster.there) == 2


@pytest.mark.parametrize("role", ["vm", "identity"])
def test_a_missing_role_is_named_in_the_report(make_cluster: MakeCluster, role: str) -> None:
    cluster = make_cluster(TWO, has_roles=tuple({"vm", "identity"} - {role}))
    cluster.update(MINUTE)
    report = cluster.report()
    assert cluster.there == []
    assert "does not have authorization to perform action" in report["problem"] + report["why"]


def test_an_azure_that_cannot_be_reached_does_not_keep_ray_from_starting(
    make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster(TWO)
    monkeypatch.setattr(scale_set_provider, "Azure", object)  # It has no method to call.
    Cluster(cluster.cloud, cluster.gcs, cluster.config.parent, TWO)


def test_a_failed_machine_that_works_stays(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(TWO)
    cluster.update(MINUTE)
    with cluster.cloud.azure.changing() as state:
        found = state.resources[SCALE_SET]
        failed = [replace(one, error="Extension") for one in machines_of(found, time.time())]
        state.resources[SCALE_SET] = with_machines(found, failed)
    cluster.update(5 * MINUTE)
    assert cluster.there == ["worker0", "worker1"]


def test_azure_is_asked_less_often_than_it_throttles(make_cluster: MakeCluster) -> None:
    """Azure allows at most 4 updates and 12 reads of a scale set per minute."""
    cluster = make_cluster(WorkerLimits(4, 4, 5))
    fault(cluster, machines=0)
    cluster.update(60 * MINUTE, every_s=30)
    reads = cluster.cloud.count(f"GET {SCALE_SET}")
    assert reads <= 60 * 6
    assert cluster.cloud.count("PATCH") <= 60
