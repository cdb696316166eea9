"""The head requests the first workers once, before Ray's autoscaler, which then counts them."""

from __future__ import annotations

import pytest

from head.autoscaler import first_workers
from infra.stack.idle_workers import WorkerLimits
from tests.head.autoscaler.cluster import Cluster
from tests.head.autoscaler.conftest import MakeCluster

pytestmark = pytest.mark.slow

TWO = WorkerLimits(2, 4, 5)


@pytest.fixture
def cluster(make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A head whose Ray has not started."""
    monkeypatch.setattr(first_workers, "PAUSE_S", 0)
    return make_cluster(TWO)


def test_azure_is_asked_once_and_rays_autoscaler_counts_them(cluster: Cluster) -> None:
    for _ in range(2):
        assert first_workers.main(2) == 0
    assert cluster.there == ["worker0", "worker1"]
    cluster.update(300)
    assert (cluster.there, cluster.cloud.count("PATCH")) == (["worker0", "worker1"], 1)


def test_what_azure_refuses_for_a_moment_is_asked_again(cluster: Cluster) -> None:
    with cluster.cloud.faults.changed() as faults:
        faults.forbidden = 2
    assert first_workers.main(2) == 0
    assert cluster.there == ["worker0", "worker1"]


def test_a_lost_answer_makes_no_worker_more(cluster: Cluster) -> None:
    with cluster.cloud.faults.changed() as faults:
        faults.lost_answers = 2
    assert first_workers.main(2) == 0
    cluster.update(300)
    assert cluster.there == ["worker0", "worker1"]


def test_a_shortage_is_told_by_rays_autoscaler_in_its_first_updates(cluster: Cluster) -> None:
    with cluster.cloud.faults.changed() as faults:
        faults.machines, faults.keeps_capacity = 1, True
    assert first_workers.main(2) == 0
    cluster.update(60)
    report = cluster.report()
    assert report["missing"] == 1
    assert report["why"].startswith("AllocationFailed")


def test_rays_autoscaler_that_has_reported_asks_alone(cluster: Cluster) -> None:
    cluster.update()
    before = cluster.cloud.count("")
    assert first_workers.main(2) == 0
    assert cluster.cloud.count("") == before
