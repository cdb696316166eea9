"""The play: a cluster's whole life, from the first `up` to what is left after `destroy`."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from mlflow import MlflowClient

from infra.results_account import CONTAINER
from rehearsal import paths
from rehearsal.backend import storage_accounts
from rehearsal.drivers.driver import Driver, Result
from rehearsal.machines.machine import Machine, all_machines
from rehearsal.records import read_records
from rehearsal.scenario import faults
from rehearsal.scenario.laptop import Laptop, NodeWatch, Training, Tunnel, newest_run, until
from rehearsal.scenario.open_ports import ports_as_declared
from rehearsal.scenario.outcomes import Timeline, UnexpectedError
from rehearsal.scenario.unsupported_properties import not_rehearsed
from tests.project import ROOT

EXPERIMENT = Path("rehearsal/experiment.yaml")
MISSING_PACKAGE = "volley-package-that-does-not-exist"
WORKERS = 2
UI_PORT = 5055


class Play:
    """What the acts share."""

    def __init__(self, driver: Driver, timeline: Timeline) -> None:
        self.driver = driver
        self.timeline = timeline
        self.laptop = Laptop(paths.RUN / "laptop")
        self.config = stack_config(self.laptop.public_key)
        self.outputs: dict[str, Any] = {}
        self.head = Machine("head")
        self.training = Training(self.head)
        self.run_id = ""
        """Of the MLflow run."""
        self.account = ""
        self.not_rehearsed: list[str] = []

    def up(self, **changes: str) -> Result:
        """Runs `up` with a changed configuration."""
        self.config = {**self.config, **changes}
        return self.driver.up(self.config)

    def act(self, name: str, expected: str, act: Callable[[], str]) -> bool:
        return self.timeline.play(name, expected, act)


def stack_config(public_key: str) -> dict[str, str]:
    """Returns the rehearsal's stack: a head and two workers that fit on a small machine."""
    return {
        "adminCidr": f"{paths.ADMIN_ADDRESS}/32",
        "sshPublicKey": public_key,
        "headSize": "Standard_D2as_v5",
        "minWorkers": str(WORKERS),
        "maxWorkers": str(WORKERS),
        "workerSettleSeconds": "0",
        "clusterCoordinationTimeoutSeconds": "180",
        "sharedMemoryGib": "1",
        "environmentVariables": json.dumps({"RAY_OVERRIDE_RESOURCES": '{"CPU": 1}'}),
        "experiment": str(ROOT / EXPERIMENT),
    }


def perform(play: Play) -> None:
    """Plays all acts, in order; without a cluster there is nothing more to see."""
    if not play.act("up", "every resource is made, the training runs", lambda: _up(play)):
        return
    play.not_rehearsed = not_rehearsed(read_records())
    with NodeWatch(play.head) as nodes:
        play.act("nodes", "head and workers in Ray", lambda: _nodes(nodes))
        play.act("metrics", "through the tunnel of the outputs", lambda: _metrics(play))
        play.act("loopback", "dashboard and MLflow, the first by token", lambda: _loopback(play))
        play.act("ports", "exactly the declared ones, each to each", ports_as_declared)
        for name, expected, fault in faults.WORKER_FAULTS:
            play.act(name, expected, partial(fault, play.training, nodes))
        play.act("more workers", "only the scale set changes", lambda: _capacity(play, nodes, 3))
        play.act("fewer workers", "only the scale set changes", lambda: _capacity(play, nodes, 2))
    play.act("head reboots", "the same MLflow run goes on", lambda: _head_reboots(play))
    play.act("experiment", "only the training starts anew", lambda: _experiment(play))
    play.act("failing boot", "`up` tells the package's name", lambda: _failing_boot(play))
    play.act("destroy", "nothing but the results", lambda: _destroy(play))
    play.act("results", "MLflow opens them on the laptop", lambda: _results(play))


def _up(play: Play) -> str:
    start = time.monotonic()
    result = play.up()
    if result.error:
        raise UnexpectedError(result.error)
    play.outputs = result.outputs
    first_update = time.monotonic() - start
    joined = play.training.started() - start
    made = sum(operation == "create" for operation, _ in result.operations)
    return (
        f"{made} types of resources; nodes joined after {joined:.0f} s, "
        f"first learner update after {first_update:.0f} s"
    )


def _nodes(nodes: NodeWatch) -> str:
    names = {machine.name for machine in all_machines()}
    nodes.wait_for(names, 30)
    return f"{len(names)} nodes"


def _metrics(play: Play) -> str:
    with Tunnel(play.laptop, play.outputs["tunnel"]) as laptop:
        run: dict[str, Any] = {}

        def has_metrics() -> bool:
            run.update(newest_run(laptop, play.outputs["mlflow"]))
            return bool(run["data"].get("metrics"))

        until(has_metrics, 60, "metrics in MLflow")
    play.run_id = run["info"]["run_id"]
    metrics = {one["key"]: one["value"] for one in run["data"]["metrics"]}
    return f"{len(metrics)} metrics, {metrics['env_steps_trained']:,.0f} steps trained"


def _loopback(play: Play) -> str:
    listening = play.head.run("ss", "-Hltn").stdout
    open_ = [line.split()[3] for line in listening.splitlines()]
    for port in ("5000", "8265"):
        places = [address for address in open_ if address.endswith(f":{port}")]
        if places != [f"127.0.0.1:{port}"]:
            raise UnexpectedError(f"port {port} listens on {places}")
    token = play.laptop.ssh(play.outputs["dashboardToken"]).strip()
    with Tunnel(play.laptop, play.outputs["tunnel"]) as laptop:
        dashboard = f"{play.outputs['dashboard']}/api/version"
        version = laptop.get(dashboard, token=token)["ray_version"]
        try:
            laptop.get(dashboard)
        except Exception:
            return f"127.0.0.1 only; Ray {version} with the token, nothing without"
    raise UnexpectedError("the dashboard answers without a token")


def _capacity(play: Play, nodes: NodeWatch, workers: int) -> str:
    result = play.up(maxWorkers=str(workers))
    if result.error or result.operations != {("update", "VirtualMachineScaleSet")}:
        raise UnexpectedError(result.error or str(sorted(result.operations)))
    names = {"head", *(f"worker{place}" for place in range(workers))}
    seconds = nodes.wait_for(names, 90)
    goes_on = play.training.goes_on(30)
    return f"{len(names)} nodes after {seconds:.0f} s; training went on within {goes_on:.0f} s"


def _experiment(play: Play) -> str:
    before = {machine.name: machine.leader for machine in all_machines()}
    changed = paths.RUN / "experiment.yaml"
    text = (ROOT / EXPERIMENT).read_text()
    changed.write_text(text.replace("num_envs_per_env_runner: 4", "num_envs_per_env_runner: 6"))
    result = play.up(experiment=str(changed))
    only = {("update", "VirtualMachineRunCommandByVirtualMachine")}
    if result.error or result.operations != only:
        raise UnexpectedError(result.error or str(sorted(result.operations)))
    if before != {machine.name: machine.leader for machine in all_machines()}:
        raise UnexpectedError("a machine was started anew")
    with Tunnel(play.laptop, play.outputs["tunnel"]) as laptop:
        run = newest_run(laptop, play.outputs["mlflow"])["info"]["run_id"]
    if run == play.run_id:
        raise UnexpectedError("the old MLflow run goes on")
    return "the run command ran, no machine was touched, a new MLflow run"


def _head_reboots(play: Play) -> str:
    play.head.run("systemctl", "reboot", check=False)
    start = time.monotonic()
    until(lambda: not play.head.cloud_init_done(), 60, "the head goes down")
    until(play.head.cloud_init_done, 120, "the head is up again")
    booted = time.monotonic() - start
    goes_on = booted + play.training.goes_on(180)
    with Tunnel(play.laptop, play.outputs["tunnel"]) as laptop:
        run = newest_run(laptop, play.outputs["mlflow"])["info"]["run_id"]
    if run != play.run_id:
        raise UnexpectedError(f"another MLflow run, {run}")
    return f"up after {booted:.0f} s, trains after {goes_on:.0f} s, the same MLflow run"


def _failing_boot(play: Play) -> str:
    result = play.up(aptPackages=json.dumps([MISSING_PACKAGE]))
    if MISSING_PACKAGE not in result.error:
        raise UnexpectedError(result.error or "`up` succeeded")
    replaced = {kind for operation, kind in result.operations if operation == "replace"}
    why = min((line for line in result.error.splitlines() if MISSING_PACKAGE in line), key=len)
    return f"{', '.join(sorted(replaced))} replaced; then: {why.strip()}"


def _destroy(play: Play) -> str:
    records = read_records().values()
    (play.account,) = [r.inputs["accountName"] for r in records if r.kind == "StorageAccount"]
    result = play.driver.destroy()
    if result.error:
        raise UnexpectedError(result.error)
    kept = sorted(record.kind for record in read_records().values())
    if all_machines() or kept != ["BlobContainer", "ResourceGroup", "StorageAccount"]:
        raise UnexpectedError(f"left: {all_machines()}, {kept}")
    return f"left: {', '.join(kept)}"


def _results(play: Play) -> str:
    """Reads what is left as its owner would: MLflow on a copy of the database."""
    database = paths.RUN / "kept" / "mlflow.db"
    database.parent.mkdir()
    storage = storage_accounts()
    database.write_bytes(storage.read(play.account, CONTAINER, "mlflow.db"))
    blobs = storage.list(play.account, CONTAINER)
    checkpoints = sum("/checkpoints/" in blob and blob.endswith("metadata.json") for blob in blobs)
    command = [sys.executable, "-m", "mlflow", "ui", "--port", str(UI_PORT)]
    command += ["--backend-store-uri", f"sqlite:///{database}"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as ui:
        try:
            until(lambda: _answers(UI_PORT), 120, "mlflow ui")
            mlflow = MlflowClient(f"http://127.0.0.1:{UI_PORT}")
            experiments = [known.experiment_id for known in mlflow.search_experiments()]
            runs = mlflow.search_runs(experiments)
        finally:
            os.killpg(ui.pid, signal.SIGKILL)
    if play.run_id not in {run.info.run_id for run in runs}:
        raise UnexpectedError(f"the run {play.run_id} is not among {len(runs)}")
    return f"{len(runs)} runs in MLflow, {checkpoints} checkpoints, {len(blobs)} blobs"


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
