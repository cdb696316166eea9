"""Acts that change nothing: they look at Ray's nodes, MLflow, open ports and results."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mlflow import MlflowClient

from head.saved_database import NEWEST
from infra.stack.results_account import CONTAINER
from payload.tracking.metrics import STEPS
from rehearsal.addresses import ADMIN_ADDRESS, METADATA_ADDRESS, STRANGER_ADDRESS
from rehearsal.azure.network.nsg_evaluation import open_ports
from rehearsal.backend import Backend, storage_accounts
from rehearsal.host_paths import RUN
from rehearsal.host_plan import plan
from rehearsal.host_shell import CommandError
from rehearsal.machines.nspawn_machine import all_machines
from rehearsal.network.bridges import INTERNET
from rehearsal.network.port_scan import scan_from
from rehearsal.scenario.context import Context
from rehearsal.scenario.head_commands import AS_RAY, PYTHON
from rehearsal.scenario.laptop import LEAN_MLFLOW, runs
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import NodeWatch, until

METADATA_URL = f"http://{METADATA_ADDRESS}/metadata/instance?api-version=2021-02-01"
TOKEN = "identity/oauth2/token?api-version=2018-02-01&resource=https://storage.azure.com"
IDENTITY_URLS = (
    METADATA_URL,
    f"http://{METADATA_ADDRESS}/metadata/{TOKEN}",
    f"http://127.0.0.1:1010/metadata/{TOKEN}",
)
ASK_ON_EVERY_NODE = """
import ray, sys, urllib.error, urllib.request
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
@ray.remote(num_cpus=0)
def ask(urls):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for url in urls:
        request = urllib.request.Request(url, headers={"Metadata": "true"})
        try:
            return opener.open(request, timeout=5).read()
        except urllib.error.HTTPError as error:
            return f"{url}: {error}"
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                return f"{url}: {error}"
    return "refused"
for node in ray.nodes():
    if node["Alive"]:
        task = ask.options(scheduling_strategy=On(node["NodeID"], soft=False))
        print(node["NodeManagerHostname"], ray.get(task.remote(sys.argv[1:])))
"""


def nodes_join(nodes: NodeWatch) -> str:
    """Waits for all nodes; then a Ray task on each asks for the machine's identity, in vain."""
    machines = all_machines()
    names = {machine.name for machine in machines}
    nodes.wait_for(names, 30)
    for machine in machines:
        machine.run("curl", "--fail", "--silent", "--header", "Metadata: true", METADATA_URL)
    asked = nodes.head.run(*AS_RAY, PYTHON, "-c", ASK_ON_EVERY_NODE, *IDENTITY_URLS).stdout
    if sorted(asked.splitlines()) != sorted(f"{name} refused" for name in names):
        raise UnexpectedError(f"Ray tasks asked for the machines' identity: {asked}")
    return f"{len(names)} nodes; on each a Ray task is refused the machine's identity"


def metrics(context: Context) -> str:
    """Reads MLflow as the administrator does."""
    run: dict[str, Any] = {}

    with context.tunnel() as laptop:

        def has_metrics() -> bool:
            # `up` ends with the first learner update, and the payload makes its run after that.
            for newest in runs(laptop, context.outputs["mlflow"])[:1]:
                run.update(newest)
            return bool(run and run["data"].get("metrics"))

        until(has_metrics, 60, "metrics in MLflow", pause_s=0.5)
    context.run_id, context.experiment_id = run["info"]["run_id"], run["info"]["experiment_id"]
    values = {metric["key"]: metric["value"] for metric in run["data"]["metrics"]}
    return f"{len(values)} metrics, {values[STEPS]:,.0f} environment steps"


def loopback(context: Context) -> str:
    """Checks that dashboard and MLflow listen on loopback only, and that one needs its token."""
    outputs = context.outputs
    lines = context.head.run("ss", "-Hltn").stdout.splitlines()
    listening = [line.split()[3] for line in lines]
    for declared in (urlsplit(outputs[name]).netloc for name in ("mlflow", "dashboard")):
        port = declared.split(":")[-1]
        addresses = [address for address in listening if address.split(":")[-1] == port]
        if addresses != [declared]:
            raise UnexpectedError(f"declared {declared}, listens on {addresses}")
    token = context.laptop.ssh(outputs["dashboardToken"]).strip()
    with context.tunnel() as laptop:
        dashboard = f"{outputs['dashboard']}/api/version"
        version = laptop.get(dashboard, token=token)["ray_version"]
        try:
            laptop.get(dashboard)
        except CommandError:
            return f"127.0.0.1 only; Ray {version} with the token, nothing without"
    raise UnexpectedError("the dashboard answers without a token")


def results(context: Context) -> str:
    """Opens the results as their owner would: MLflow on a copy of the saved database."""
    database = RUN / "kept" / "mlflow.db"
    database.parent.mkdir()
    storage = storage_accounts()
    packed = storage.read(context.account, CONTAINER, NEWEST)
    database.write_bytes(gzip.decompress(packed))
    blobs = storage.list(context.account, CONTAINER)
    checkpoints = sum("/checkpoints/" in blob and blob.endswith("metadata.json") for blob in blobs)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "ui", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{database}"]
    with subprocess.Popen(
        command,
        env={**os.environ, **LEAN_MLFLOW},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as ui:
        try:
            until(lambda: _answers(port), 120, "mlflow ui")
            mlflow = MlflowClient(f"http://127.0.0.1:{port}")
            experiments = [experiment.experiment_id for experiment in mlflow.search_experiments()]
            kept = mlflow.search_runs(experiments)
        finally:
            os.killpg(ui.pid, signal.SIGKILL)
    if context.run_id not in {run.info.run_id for run in kept}:
        raise UnexpectedError(f"the run {context.run_id} is not among the {len(kept)} kept runs")
    return f"{len(kept)} runs in MLflow, {checkpoints} checkpoints, {len(blobs)} blobs"


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def ports_as_declared() -> str:
    """Scans all ports of each machine from each other machine and from the internet."""
    declared = plan(Backend().resources())
    wrong, tried = [], 0
    for source in _sources():
        for target in all_machines():
            inner = target.spec.address
            address = declared.public_addresses.get(target.name) if source.outside else inner
            if source.name == target.name or address is None:
                continue
            allowed = open_ports(declared.nsgs, source.address, inner)
            passed = scan_from(source.namespace, source.address, address).passed
            tried += 1
            for state, ports in (("open", passed - allowed), ("closed", allowed - {0} - passed)):
                if ports:
                    wrong.append(f"{source.name} to {target.name}: {state}: {_ranges(ports)}")
    if wrong:
        raise UnexpectedError("; ".join(wrong))
    return f"65,535 ports on {tried} ways, all as declared"


@dataclass(frozen=True)
class _Source:
    """A machine or a person who scans the ports."""

    name: str
    namespace: Path
    address: str
    outside: bool = False


def _sources() -> Iterator[_Source]:
    for machine in all_machines():
        if machine.leader is None:
            raise UnexpectedError(f"{machine.name} does not run")
        namespace = Path(f"/proc/{machine.leader}/ns/net")
        yield _Source(machine.name, namespace, machine.spec.address)
    internet = Path("/run/netns") / INTERNET
    yield _Source("the administrator", internet, ADMIN_ADDRESS, outside=True)
    yield _Source("a stranger", internet, STRANGER_ADDRESS, outside=True)


def _ranges(ports: Set[int]) -> str:
    """Writes ports as numbers and ranges: 22, 8076-8077."""
    parts: list[list[int]] = []
    for port in sorted(ports):
        if parts and port == parts[-1][1] + 1:
            parts[-1][1] = port
        else:
            parts.append([port, port])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
