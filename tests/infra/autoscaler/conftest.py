from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray.autoscaler._private import autoscaler, providers

from infra import boot
from infra.boot.autoscaler import management, ray_nodes, scale_set_provider
from infra.boot.cluster_package import PACKAGE
from infra.stack.autoscaling import PROVIDER, Scaling
from rehearsal.azure.resources import roles
from tests.infra.autoscaler.cluster import Clock, Cluster, Gcs
from tests.rehearsal.azure.resources.scale_set_cloud import ROLES, cloud

HEARTBEAT_S = 180
MakeCluster = Callable[..., Cluster]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(time, "time", found)
    return found


@pytest.fixture
def make_cluster(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeCluster]:
    """Makes a cluster of up to four workers, which go after five idle minutes."""
    alias_package(monkeypatch)
    monkeypatch.setattr(roles, "ROLE_DELAY_S", 0)
    monkeypatch.setattr(autoscaler, "AUTOSCALER_HEARTBEAT_TIMEOUT_S", HEARTBEAT_S)
    with ExitStack() as running:

        def make(
            scaling: Scaling = Scaling(0, 4, 5),  # noqa: B008
            capacity: int = 0,
            has_roles: tuple[str, ...] = tuple(ROLES),
        ) -> Cluster:
            azure = running.enter_context(cloud(tmp_path, capacity, has_roles))
            gcs = Gcs(azure, clock)
            sleep = SimpleNamespace(sleep=clock.advance)
            monkeypatch.setattr(management, "time", sleep)
            monkeypatch.setattr(ray_nodes, "internal_kv_get_gcs_client", lambda: gcs)
            monkeypatch.setattr(scale_set_provider, "machine_token", lambda: azure.token)
            return Cluster(azure, gcs, tmp_path, scaling)

        yield make
    providers._clear_provider_cache()


def alias_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes infra.boot known as volley_cluster, under which Ray imports the provider."""
    *names, _ = PROVIDER.split(".")
    monkeypatch.setitem(sys.modules, PACKAGE, boot)
    for count in range(2, len(names) + 1):
        inside = ".".join(names[1:count])
        monkeypatch.setitem(
            sys.modules, f"{PACKAGE}.{inside}", sys.modules[f"{boot.__name__}.{inside}"]
        )
