"""The act in which the stack reports to an MLflow server that somebody else runs."""

from __future__ import annotations

import sys
from typing import Any

from infra.ports import MLFLOW
from payload.tracking.metrics import STEPS
from rehearsal import background_process
from rehearsal.addresses import MLFLOW_ADDRESS
from rehearsal.machines.machine import all_machines
from rehearsal.paths import RUN
from rehearsal.scenario import python_environments, stack_changes
from rehearsal.scenario.context import EXPERIMENT, Context
from rehearsal.scenario.laptop import LEAN_MLFLOW, ON_THE_INTERNET, runs
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until

FOLDER = RUN / "mlflow-elsewhere"
URI = f"http://{MLFLOW_ADDRESS}:{MLFLOW}"


def mlflow_elsewhere(context: Context) -> str:
    """Runs `up` with mlflowTrackingUri and without workers; reads the metrics from that server."""
    start_server()
    changes = {"minWorkers": "0", "maxWorkers": "0", "mlflowTrackingUri": URI}
    stack_changes.up(context, experiment=str(EXPERIMENT), **changes)
    if context.outputs["mlflow"] != URI:
        raise UnexpectedError(f"the output mlflow is {context.outputs['mlflow']}")
    listening = context.head.run("ss", "-Hltn", f"sport = :{MLFLOW}").stdout.strip()
    if listening:
        raise UnexpectedError(f"the head runs its own MLflow: {listening}")
    values: dict[str, Any] = {}

    def has_metrics() -> bool:
        for run in runs(context.laptop, URI):
            metrics = run["data"].get("metrics", [])
            values.update({metric["key"]: metric["value"] for metric in metrics})
        return STEPS in values

    until(has_metrics, 60, f"metrics at {URI}", pause_s=0.5)
    environment = python_environments.taken(all_machines())
    return f"{len(values)} metrics there, {values[STEPS]:,.0f} environment steps; {environment}"


def start_server() -> None:
    """Starts MLflow on the internet; `clean` ends everything there.

    Raises:
        background_process.StartError: It did not start.
    """
    FOLDER.mkdir()
    command = [*ON_THE_INTERNET, sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--host", MLFLOW_ADDRESS, "--port", str(MLFLOW)]
    command += ["--allowed-hosts", f"{MLFLOW_ADDRESS}:{MLFLOW}"]
    command += ["--backend-store-uri", f"sqlite:///{FOLDER}/mlflow.db"]
    command += ["--artifacts-destination", str(FOLDER / "artifacts")]
    background_process.start(
        command,
        pid_file=FOLDER / "pid",
        log=FOLDER / "log",
        address=MLFLOW_ADDRESS,
        port=MLFLOW,
        environment=LEAN_MLFLOW,
        timeout_s=120,
    )
