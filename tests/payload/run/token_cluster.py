"""A Ray cluster on this machine that requires a token, as volley's own does."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]
from ray.cluster_utils import Cluster

from tests.local_ray import leave_local_ray, short_lived_cluster


@contextmanager
def token_cluster(head_cpus: int, node_cpus: int) -> Iterator[Cluster]:
    """Shuts down this process's Ray, and starts a head and a node."""
    # Ray's own health check takes 15 s to notice that a node is gone.
    soon = {"health_check_period_ms": 500, "health_check_failure_threshold": 2}
    leave_local_ray()
    head = {"num_cpus": head_cpus, "_system_config": soon}
    with token(), short_lived_cluster(head) as cluster:
        cluster.add_node(num_cpus=node_cpus)
        cluster.wait_for_nodes()
        yield cluster


@contextmanager
def token() -> Iterator[None]:
    """Makes every Ray process that starts meanwhile require a token."""

    def read_environment() -> None:
        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_AUTH_MODE", "token")
        environment.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        read_environment()
        yield
    read_environment()
