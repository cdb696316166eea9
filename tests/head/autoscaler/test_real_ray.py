"""Ray's head with its autoscaler, identity.service and a worker, each started as its unit does."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ray.util import get_node_ip_address

from infra.config.stack_settings import StackSettings
from infra.config.vm_sizes import Machine
from infra.stack.head_software import cluster_settings
from infra.stack.idle_workers import WorkerLimits, autoscaling_config
from rehearsal.azure.resources import roles
from tests.free_port import free_port
from tests.infra.declared_stack import REQUIRED
from tests.local_server import json_server
from tests.project import ROOT
from tests.rehearsal.azure.resources.scale_set_cloud import SCALE_SET, Cloud, cloud

pytestmark = pytest.mark.slow

RAY = Path(sys.executable).with_name("ray")
WORKER_IP = "127.0.0.2"
IDLE_MINUTES = 0.5
"""Longer than a raylet on a busy machine takes from its start to its first task."""
TASK = """
import ray, sys
ray.init(sys.argv[1], log_to_driver=False)
print(ray.get(ray.remote(num_cpus=2)(lambda: "done").remote()))
"""
REQUEST = "from head.queue.ray_api import RayCluster; RayCluster().request_workers({})"


class RealRay:
    """Ray's processes, whose environment points them to the Azure stand-in."""

    def __init__(self, azure: Cloud, folder: Path, metadata: str) -> None:
        self.azure, self.folder = azure, folder
        self.report_file = folder / "var/lib/volley/cluster-workers.json"
        self.report_file.parent.mkdir(parents=True)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "VOLLEY_ROOT": str(folder),
            "AZURE_CLIENT_ID": "client",
            "AZURE_POD_IDENTITY_AUTHORITY_HOST": metadata,
            "RAY_enable_autoscaler_v2": "0",
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
        }
        self._running: list[subprocess.Popen[str]] = []
        self._head_ip = get_node_ip_address()
        self._port = free_port(self._head_ip)
        self._temporary = tempfile.mkdtemp(prefix="ray-")  # A socket's path has <= 107 letters.

    def head(self, url: str) -> None:
        size = Machine.named("Standard_D2as_v5")
        config = self.folder / "autoscaling.yaml"
        config.write_text(
            autoscaling_config(self._head_ip, size, size, WorkerLimits(0, 2, IDLE_MINUTES))
        )
        self._serve_identity(url)
        self._start(
            *("--head", f"--port={self._port}", "--num-cpus=0", "--include-dashboard=false"),
            *(f"--node-ip-address={self._head_ip}", f"--temp-dir={self._temporary}"),
            f"--autoscaling-config={config}",
        )

    def _serve_identity(self, url: str) -> None:
        own = StackSettings.model_validate({**REQUIRED, "maxWorkers": 2})
        settings = replace(cluster_settings(own, SCALE_SET, "/head"), endpoint=url)
        for folder in ("etc/volley", "run/volley-identity"):
            (self.folder / folder).mkdir(parents=True)
        (self.folder / "etc/volley/cluster-settings.json").write_text(settings.to_json())
        self._spawn([sys.executable, "-m", "head.identity.server"], {})

    def worker(self, name: str) -> None:
        where = (f"--address={self._head_ip}:{self._port}", f"--node-ip-address={WORKER_IP}")
        own = ("--num-cpus=2", '--resources={"worker": 1}')
        self._start(*where, *own, RAY_CLOUD_INSTANCE_ID=name, RAY_NODE_TYPE_NAME="worker")

    def task(self) -> subprocess.Popen[str]:
        """Starts a task of two CPUs, which only a worker has."""
        command = [sys.executable, "-c", TASK, f"{self._head_ip}:{self._port}"]
        return self._spawn(command, {}, stdout=subprocess.PIPE)

    def request(self, workers: int) -> None:
        """Requests workers as the queue does."""
        address = {"RAY_ADDRESS": f"{self._head_ip}:{self._port}"}
        asked = self._spawn([sys.executable, "-c", REQUEST.format(workers)], address)
        asked.communicate(timeout=60)
        assert asked.returncode == 0

    def report(self) -> dict[str, Any]:
        if not self.report_file.exists():
            return {}
        found: dict[str, Any] = json.loads(self.report_file.read_text())
        return found

    def stop(self) -> None:
        """Kills all processes and prints their logs, which pytest shows if the test fails."""
        for process in self._running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._running:
            process.communicate()
        monitor = Path(self._temporary).glob("session_latest/logs/monitor.*")
        for file in (*self.folder.glob("*.log"), *monitor):
            print(file.name, file.read_text()[-2000:], sep="\n")
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _start(self, *flags: str, **environment: str) -> None:
        options = ("--block", "--disable-usage-stats", "--object-store-memory=100000000")
        self._spawn([str(RAY), "start", *options, *flags], environment)

    def _spawn(
        self, command: list[str], more: dict[str, str], stdout: int | None = None
    ) -> subprocess.Popen[str]:
        with (self.folder / f"{len(self._running)}.log").open("w") as log:
            process = subprocess.Popen(
                command,
                env={**self._environment, **more},
                stdout=log if stdout is None else stdout,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._running.append(process)
        return process


@pytest.fixture
def ray_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealRay]:
    monkeypatch.setattr(roles, "ROLE_DELAY_S", -1)
    with ExitStack() as running:
        azure = running.enter_context(cloud(tmp_path))

        def token(*_: object) -> tuple[int, Any]:
            end = str(int(time.time()) + 86400)
            known = {"access_token": azure.token(), "token_type": "Bearer"}
            return 200, {**known, "expires_in": "86400", "expires_on": end, "resource": "r"}

        metadata = running.enter_context(json_server(token))
        found = RealRay(azure, tmp_path, metadata)
        running.callback(found.stop)
        yield found


def wait_for(what: str, condition: Callable[[], object], seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.2)


def test_a_waiting_task_brings_a_worker_that_goes_when_it_is_idle(ray_cluster: RealRay) -> None:
    ray_cluster.head(ray_cluster.azure.url)
    wait_for("the autoscaler reports", ray_cluster.report)
    task = ray_cluster.task()
    wait_for("a machine is made", ray_cluster.azure.machines)
    ray_cluster.worker("worker0")
    wait_for("it has joined", lambda: ray_cluster.report()["there"] == ["worker0"])
    assert task.communicate(timeout=240)[0] == "done\n"
    wait_for("it is deleted", lambda: not ray_cluster.azure.machines())
    assert ray_cluster.azure.count("PATCH") == 1


def test_ray_runs_without_an_azure_that_answers_and_asks_it_later(ray_cluster: RealRay) -> None:
    with ray_cluster.azure.faults.changed() as faults:
        faults.forbidden = 1000
    ray_cluster.head(ray_cluster.azure.url)
    wait_for("the autoscaler reports", ray_cluster.report)
    ray_cluster.request(2)
    # More consecutive failures than Ray's autoscaler tolerates by default.
    wait_for("it has asked often", lambda: ray_cluster.azure.count("GET") > 8)
    assert "AuthorizationFailed" in ray_cluster.report()["problem"]
    with ray_cluster.azure.faults.changed() as faults:
        faults.forbidden = 0
    wait_for("both are made", lambda: len(ray_cluster.azure.machines()) == 2)
