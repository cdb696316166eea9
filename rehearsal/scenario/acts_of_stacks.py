"""The acts of the scenario `stacks`: no workers, kept results, existing resources, a company."""

from __future__ import annotations

import sys
from typing import Any

from infra.ports import MLFLOW
from infra.stack.results_account import CONTAINER
from payload.tracking.metrics import STEPS
from rehearsal import background_process
from rehearsal.addresses import MLFLOW_ADDRESS
from rehearsal.backend import Backend, storage_accounts
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.host_paths import ROOT, RUN
from rehearsal.machines.nspawn_machine import all_machines
from rehearsal.scenario import (
    company,
    machine_faults,
    python_environments,
    read_only_acts,
    second_life,
    stack_changes,
)
from rehearsal.scenario.context import EXPERIMENT, Context
from rehearsal.scenario.head_commands import save_results
from rehearsal.scenario.laptop import LEAN_MLFLOW, ON_THE_INTERNET, Laptop, runs
from rehearsal.scenario.outcomes import Outcomes, UnexpectedError
from rehearsal.scenario.second_life import make_existing_network
from rehearsal.scenario.training_watch import until
from rehearsal.scenario.unsupported_properties import unsupported_properties

HEAD_ALONE = "no worker: the head trains, and saves a checkpoint"
SECOND_LIFE = "in somebody else's subnets: the same run, by the private endpoint only"
SEARCH = "an experiment with a search space has a nested MLflow run per trial"
MLFLOW_ELSEWHERE = "the head runs no MLflow, the metrics arrive there"
COMPANY = "two groups, policies, no public address; two administrators use a jump host"
CHECKPOINT_S = 150.0
"""The payload writes one every 60 s, and the head saves every 30 s."""
SEARCH_EXPERIMENT = ROOT / "rehearsal/scenario/search_experiment.yaml"
TRIALS = 2
FILES_S = 60.0
SEARCHED_S = 180.0
BEST = "best.yaml"
PARENT = "mlflow.parentRunId"
"""MLflow's own tag of a nested run."""
MLFLOW_FOLDER = RUN / "mlflow-elsewhere"
MLFLOW_URI = f"http://{MLFLOW_ADDRESS}:{MLFLOW}"


def run_stacks(context: Context, outcomes: Outcomes) -> list[str]:
    """Runs the acts, which need the first one; returns what was declared and not rehearsed."""
    act = outcomes.act
    if not act("head alone", HEAD_ALONE, head_alone, context):
        return []
    declared = Backend().resources()
    act("destroy", "only the results are left", stack_changes.destroy, context)
    existing = make_existing_network(Backend())
    before = Backend().resources()
    if act("second life", SECOND_LIFE, second_life.second_life, context, existing):
        after = Backend().resources()
        declared |= {key: resource for key, resource in after.items() if key not in before}
        act("search", SEARCH, search, context)
        act("mlflow elsewhere", MLFLOW_ELSEWHERE, mlflow_elsewhere, context)
    act("destroy", "all from before is unchanged", second_life.destroy, context, before)
    if isinstance(context.driver, PulumiCli):
        driver = context.driver
        if act("company", COMPANY, company.company, context, driver, existing):
            act("destroy", "the company's resources and the results stay", company.destroy, context)
    return unsupported_properties(declared)


def head_alone(context: Context) -> str:
    """Runs `up` without workers; waits until a checkpoint of the training is saved."""
    seen = stack_changes.up(context, minWorkers="0", maxWorkers="0")
    machine_faults.check_head_is_alone()
    metrics = read_only_acts.metrics(context)
    env_runners = context.training.env_runners()["head"]
    context.account = context.outputs["resultsAccountId"].rpartition("/")[2]

    def has_checkpoint() -> bool:
        blobs = storage_accounts().list(context.account, CONTAINER, "runs/")
        return any("/checkpoints/" in blob for blob in blobs)

    seconds = until(has_checkpoint, CHECKPOINT_S, "a saved checkpoint")
    installed = python_environments.installed(context.head)
    shared = python_environments.shared(context.head)
    # The checkpoint's last file may not be saved yet.
    save_results(context.head)
    return (
        f"{seen}; {env_runners} env runner on the head, {metrics}; "
        f"a checkpoint was saved {seconds:.0f} s later; {installed}, {shared}"
    )


def search(context: Context) -> str:
    """Waits for the end of the search; reads its runs in MLflow as the administrator does."""
    context.up_with_new_run(experiment=str(SEARCH_EXPERIMENT))
    mlflow = context.outputs["mlflow"]
    with context.tunnel() as laptop:

        def is_over() -> bool:
            parent, _ = _search_runs(laptop, mlflow)
            return bool(parent["info"]["status"] != "RUNNING")

        seconds = until(is_over, SEARCHED_S, "the end of the search", pause_s=0.5)
        parent, trials = _search_runs(laptop, mlflow)
        run_id = parent["info"]["run_id"]

        def has_best() -> bool:
            listed = laptop.get(f"{mlflow}/api/2.0/mlflow/artifacts/list?run_id={run_id}")
            return BEST in {file["path"] for file in listed.get("files", [])}

        # MLflow gets the files of a run after its status.
        until(has_best, FILES_S, f"{BEST} among the artifacts", pause_s=0.5)
    states = {run["info"]["status"] for run in (parent, *trials)}
    if len(trials) != TRIALS or states != {"FINISHED"}:
        raise UnexpectedError(f"{len(trials)} trials, states {', '.join(sorted(states))}")
    return f"a run with {len(trials)} nested runs, all FINISHED {seconds:.0f} s later, with {BEST}"


def _search_runs(laptop: Laptop, mlflow: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the run of the newest search, and those of its trials."""
    by_id = {run["info"]["run_id"]: run for run in runs(laptop, mlflow)}
    parents = {
        run_id: tag["value"]
        for run_id, run in by_id.items()
        for tag in run["data"].get("tags", [])
        if tag["key"] == PARENT
    }
    newest, *_ = by_id
    search_id = parents.get(newest, newest)
    trials = [run for run_id, run in by_id.items() if parents.get(run_id) == search_id]
    return by_id[search_id], trials


def mlflow_elsewhere(context: Context) -> str:
    """Runs `up` with mlflowTrackingUri and without workers; reads the metrics from that server."""
    start_server()
    changes = {"minWorkers": "0", "maxWorkers": "0", "mlflowTrackingUri": MLFLOW_URI}
    stack_changes.up(context, experiment=str(EXPERIMENT), **changes)
    if context.outputs["mlflow"] != MLFLOW_URI:
        raise UnexpectedError(f"the output mlflow is {context.outputs['mlflow']}")
    listening = context.head.run("ss", "-Hltn", f"sport = :{MLFLOW}").stdout.strip()
    if listening:
        raise UnexpectedError(f"the head runs its own MLflow: {listening}")
    values: dict[str, Any] = {}

    def has_metrics() -> bool:
        for run in runs(context.laptop, MLFLOW_URI):
            metrics = run["data"].get("metrics", [])
            values.update({metric["key"]: metric["value"] for metric in metrics})
        return STEPS in values

    until(has_metrics, 60, f"metrics at {MLFLOW_URI}", pause_s=0.5)
    environment = python_environments.taken(all_machines())
    return f"{len(values)} metrics there, {values[STEPS]:,.0f} environment steps; {environment}"


def start_server() -> None:
    """Starts MLflow on the internet; `clean` ends everything there."""
    MLFLOW_FOLDER.mkdir()
    command = [*ON_THE_INTERNET, sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--host", MLFLOW_ADDRESS, "--port", str(MLFLOW)]
    command += ["--allowed-hosts", f"{MLFLOW_ADDRESS}:{MLFLOW}"]
    command += ["--backend-store-uri", f"sqlite:///{MLFLOW_FOLDER}/mlflow.db"]
    command += ["--artifacts-destination", str(MLFLOW_FOLDER / "artifacts")]
    background_process.start(
        command,
        pid_file=MLFLOW_FOLDER / "pid",
        log=MLFLOW_FOLDER / "log",
        address=MLFLOW_ADDRESS,
        port=MLFLOW,
        environment=LEAN_MLFLOW,
        timeout_s=120,
    )
