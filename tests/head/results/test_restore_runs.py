"""Runs that were removed from the head's disk come back from a real Blob service."""

from __future__ import annotations

from shutil import rmtree

import pytest

from head.disk import LEAST
from tests.head.relocated import relocated
from tests.head.results.cluster import KEY, Cluster
from tests.payload.small_disk import small_disk

pytestmark = pytest.mark.slow


def test_they_come_back_where_they_fit_and_are_known_as_saved(cluster: Cluster) -> None:
    root = cluster.home.parents[2]
    weights = cluster.write_run("a/checkpoints/checkpoint_1/weights", "learned")
    assert cluster.save()
    rmtree(cluster.home / "runs" / KEY)
    module = relocated("head.restore_runs", root, "head.results", "head.disk")
    with small_disk(cluster.home, LEAST):
        assert module.bring_back(cluster.blobs, KEY) == (
            "the head's disk has 5.0 GiB left, and the runs have 0.0 GiB"
        )
    assert module.bring_back(cluster.blobs, KEY) == ""
    assert weights.read_text() == "learned"
    assert relocated("head.marks", root).is_saved(weights)
