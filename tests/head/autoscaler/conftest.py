from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from ray.autoscaler._private import autoscaler, providers

from head import resource_manager
from head.autoscaler import first_workers, scale_set, scale_set_provider
from head.cluster_settings import ClusterSettings
from head.identity import workers
from head.resource_manager import MachineToken, ResourceManager
from infra.config.stack_settings import StackSettings
from infra.stack.head_software import cluster_settings
from infra.stack.idle_workers import WorkerLimits
from rehearsal.azure.resources import roles
from tests.head.autoscaler.cluster import Clock, Cluster, Gcs
from tests.infra.declared_stack import REQUIRED
from tests.rehearsal.azure.resources.scale_set_cloud import ROLES, SCALE_SET, Cloud, cloud

HEARTBEAT_S = 180
MakeCluster = Callable[..., Cluster]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "time", found)
    for module in (scale_set, scale_set_provider, workers):
        monkeypatch.setattr(module, "monotonic", found.monotonic)
    return found


@pytest.fixture
def make_cluster(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeCluster]:
    """Makes a cluster of up to four workers, which are removed after five idle minutes."""
    monkeypatch.setattr(roles, "ROLE_DELAY_S", 0)
    monkeypatch.setattr(autoscaler, "AUTOSCALER_HEARTBEAT_TIMEOUT_S", HEARTBEAT_S)
    with ExitStack() as running:

        def make(
            limits: WorkerLimits = WorkerLimits(0, 4, 5),  # noqa: B008
            capacity: int = 0,
            has_roles: tuple[str, ...] = tuple(ROLES),
        ) -> Cluster:
            azure = running.enter_context(cloud(tmp_path, capacity, has_roles))
            gcs = Gcs(azure, clock)
            monkeypatch.setattr(resource_manager, "sleep", clock.advance)
            monkeypatch.setattr(scale_set_provider, "internal_kv_get_gcs_client", lambda: gcs)
            # identity.service has them: tests/head/identity.
            asked = workers.Workers(client(azure, azure.url), SCALE_SET)
            monkeypatch.setattr(scale_set_provider, "Azure", lambda: asked)
            monkeypatch.setattr(first_workers, "Workers", lambda: asked)
            monkeypatch.setattr(workers, "read_settings", lambda: settings(limits))
            monkeypatch.setattr(scale_set_provider, "WORKERS", tmp_path / "cluster-workers.json")
            monkeypatch.setattr(first_workers, "WORKERS", tmp_path / "cluster-workers.json")
            monkeypatch.setattr(first_workers, "FIRST_WORKERS", tmp_path / "first-workers")
            return Cluster(azure, gcs, tmp_path, limits)

        yield make
    providers._clear_provider_cache()


def settings(limits: WorkerLimits) -> ClusterSettings:
    own = StackSettings.model_validate({**REQUIRED, "maxWorkers": limits.max_workers})
    return cluster_settings(own, SCALE_SET, "/head")


class Identity:
    """The head's identity, whose tokens the stand-in accepts."""

    def __init__(self, azure: Cloud) -> None:
        self._azure = azure

    def get_token(self, *_: str) -> MachineToken:
        return MachineToken(self._azure.token())


def client(azure: Cloud, endpoint: str) -> ResourceManager:
    return ResourceManager(Identity(azure), endpoint)
