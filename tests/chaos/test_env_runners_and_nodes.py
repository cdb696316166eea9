"""Env runners and nodes are killed while a run trains on three nodes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from payload.tracking.metrics import RESTARTS
from tests.chaos.nodes import env_runners, kill_nodes, processes_of
from tests.chaos.runs import ALIVE, THROUGHPUT, config, restarts, settle, wait_until
from tests.payload.command_line import learning

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

Record = Callable[[str, str, float], None]


def kill_env_runner(cluster: Cluster) -> tuple[float, int]:
    """Kills one env runner; returns the time of the kill and the number killed, 1."""
    processes = [process for node in cluster.worker_nodes for process in processes_of(node)]
    env_runners(processes)[0].kill()
    return time.monotonic(), 1


@pytest.mark.parametrize(
    ("fault", "killed"),
    [
        ("SIGKILL of an env runner", 0),
        ("SIGKILL of a raylet with its env runner", 1),
        ("SIGKILL of two of three nodes at once, given back", 2),
    ],
)
def test_the_run_has_its_env_runners_and_its_throughput_back(
    cluster: Cluster, folder: Path, record: Record, fault: str, killed: int
) -> None:
    with learning(folder, "--address", cluster.address, *config(env_runners=3)) as process:
        before = settle(folder, env_runners=3)
        before_fault = restarts(folder)
        at, lost = kill_nodes(cluster, killed) if killed else kill_env_runner(cluster)
        for _ in range(killed):
            cluster.add_node(num_cpus=1)

        def as_before(row: dict[str, float]) -> bool:
            return (
                row[RESTARTS] == before_fault + lost
                and row[ALIVE] == 3
                and row[THROUGHPUT] > before / 2
            )

        back = wait_until(folder, as_before, at, 120)
        assert process.poll() is None
    record(fault, "rollout fragments under way", back)
    assert back < 60
