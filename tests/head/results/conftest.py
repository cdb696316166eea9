"""Clusters that share a results account."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rehearsal.azure.blob.blob_storage import PROGRAM, BlobStorage
from tests.free_port import free_port
from tests.head.results.cluster import HEAD_ACCESS, Cluster, Make


@pytest.fixture(scope="session")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlobStorage]:
    if not PROGRAM.exists():
        pytest.skip(f"Azurite is not installed (`make rehearse` does it): {PROGRAM} is missing")
    folder = tmp_path_factory.mktemp("storage") / "blobs"
    found = BlobStorage(folder, "127.0.0.4", free_port("127.0.0.4"))
    found.add_account("results")
    found.grant(HEAD_ACCESS)
    yield found
    found.stop()


@pytest.fixture
def make(storage: BlobStorage, tmp_path: Path) -> Iterator[Make]:
    """Makes clusters, each with its own head, one after another or at the same time."""
    container = f"c{time.monotonic_ns()}"
    storage.create_container("results", container)
    made: list[Cluster] = []

    def another() -> Cluster:
        made.append(Cluster(storage, container, tmp_path / f"head{len(made)}"))
        return made[-1]

    yield another
    for cluster in made:
        cluster.blobs.close()


@pytest.fixture
def cluster(make: Make) -> Cluster:
    return make()
