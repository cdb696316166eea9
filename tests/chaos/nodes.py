"""A Ray cluster of several nodes on this machine, whose processes can be killed."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest
from ray.cluster_utils import Cluster

from tests.local_ray import short_lived_cluster
from tests.project import ROOT

RAY_ENV = ROOT / "infra/boot/files/common/etc/volley/ray.env"


@contextmanager
def start_cluster(nodes: int) -> Iterator[Cluster]:
    """Starts a head and `nodes` nodes with one CPU each, with the Ray settings used on Azure."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in re.findall(r"^(RAY_[a-z_]+)=(.*)$", RAY_ENV.read_text(), re.MULTILINE):
            environment.setenv(name, value)
        with short_lived_cluster({"num_cpus": 1}) as cluster:
            for _ in range(nodes):
                cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
            yield cluster


def kill_nodes(cluster: Cluster, count: int) -> tuple[float, int]:
    """Kills raylets with all their processes, as if Azure took the VMs away.

    Nodes with an env runner go first.

    Returns:
        The time of the kill, and the number of env runners killed.
    """
    nodes = sorted(cluster.worker_nodes, key=lambda node: -len(env_runners(processes_of(node))))
    victims = nodes[:count]
    processes = [process for node in victims for process in processes_of(node)]
    lost = len(env_runners(processes))
    at = time.monotonic()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    for node in victims:
        cluster.remove_node(node, allow_graceful=False)
    return at, lost


def env_runners(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Returns those that are env runners."""
    return [process for process in processes if process.name().startswith("ray::Atari")]


def kill_gcs(cluster: Cluster) -> float:
    """Kills the GCS; returns the time of the kill."""
    (gcs,) = cluster.head_node.all_processes["gcs_server"]
    gcs.process.kill()
    return time.monotonic()


def processes_of(node: object) -> list[psutil.Process]:
    """Returns all processes of a node, its raylet first."""
    started = [info.process.pid for infos in node.all_processes.values() for info in infos]  # type: ignore[attr-defined]
    found = []
    for pid in started:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            found += [process, *process.children(recursive=True)]
    return found
