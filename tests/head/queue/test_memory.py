"""Memory runs out on the head: the env runner that takes it goes, all that others need stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from ray.cluster_utils import Cluster

from head.queue.plan import entrypoint
from tests.chaos.nodes import processes_of
from tests.local_ray import short_lived_cluster
from tests.memory_group import memory_group

pytestmark = pytest.mark.slow

DRIVER = """
import json, os, pathlib, sys
import ray

group, address = sys.argv[1:]
pathlib.Path(group, "cgroup.procs").write_text(str(os.getpid()))
ray.init(address=address, log_to_driver=False)
# As a driver with a learner: it is larger than its env runners.
own = bytearray(os.urandom(2**20) * 250)

@ray.remote(max_restarts=1)
class EnvRunner:
    def score(self):
        return int(open("/proc/self/oom_score_adj").read())

    def allocate_without_end(self):
        taken = []
        while True:
            taken.append(bytearray(os.urandom(2**20)))

runner = EnvRunner.remote()
runners_score = ray.get(runner.score.remote())
try:
    ray.get(runner.allocate_without_end.remote())
except ray.exceptions.RayActorError:
    ended = "actor"
ray.get(runner.score.remote(), timeout=60)
print(json.dumps({
    "killed": ended,
    "driver": int(open("/proc/self/oom_score_adj").read()),
    "env runner": runners_score,
}))
"""
"""Ends when the env runner has been killed for its memory and started again."""


@pytest.fixture
def ray_in_a_group() -> Iterator[tuple[Cluster, Path]]:
    """A Ray head whose workers, and what joins the group, share 560 MiB."""
    with memory_group(560) as group, short_lived_cluster({"num_cpus": 1}) as cluster:
        for process in processes_of(cluster.head_node):
            (group / "cgroup.procs").write_text(str(process.pid))
        yield cluster, group


def test_an_env_runner_that_allocates_without_end_is_all_that_is_killed(
    tmp_path: Path, ray_in_a_group: tuple[Cluster, Path]
) -> None:
    cluster, group = ray_in_a_group
    services = [
        process
        for process in processes_of(cluster.head_node)
        if process.name() in ("gcs_server", "raylet")
    ]
    assert len(services) == 2
    (tmp_path / "driver.py").write_text(DRIVER)
    driver = [sys.executable, str(tmp_path / "driver.py"), str(group), cluster.address]
    # Ray starts a job as a child of one of its workers, from which it has the score.
    start = f"echo 1000 > /proc/self/oom_score_adj; {entrypoint(driver, tmp_path)}"
    subprocess.run(["sh", "-c", start], timeout=120, check=False, env=dict(os.environ))
    lines = (tmp_path / "output.log").read_text().splitlines()
    assert json.loads(lines[-1]) == {"killed": "actor", "driver": 500, "env runner": 1000}, lines
    assert all(process.status() != psutil.STATUS_ZOMBIE for process in services)
