"""The act in which `up` puts an experiment with a search space on the cluster."""

from __future__ import annotations

from typing import Any

from rehearsal.paths import ROOT
from rehearsal.scenario.context import Context
from rehearsal.scenario.laptop import Laptop, runs
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until

EXPERIMENT = ROOT / "rehearsal/scenario/search_experiment.yaml"
TRIALS = 2
SEARCHED_S = 180.0
BEST = "best.yaml"
PARENT = "mlflow.parentRunId"
"""MLflow's own tag of a nested run."""


def search(context: Context) -> str:
    """Waits for the end of the search; reads its runs in MLflow as the administrator does."""
    context.up_with_new_run(experiment=str(EXPERIMENT))
    mlflow = context.outputs["mlflow"]
    with context.tunnel() as laptop:
        seconds = until(
            lambda: _is_over(laptop, mlflow), SEARCHED_S, "the end of the search", pause_s=0.5
        )
        parent, trials = _search_runs(laptop, mlflow)
        run_id = parent["info"]["run_id"]
        listed = laptop.get(f"{mlflow}/api/2.0/mlflow/artifacts/list?run_id={run_id}")
    states = {run["info"]["status"] for run in (parent, *trials)}
    if len(trials) != TRIALS or states != {"FINISHED"}:
        raise UnexpectedError(f"{len(trials)} trials, states {', '.join(sorted(states))}")
    artifacts = {file["path"] for file in listed.get("files", [])}
    if BEST not in artifacts:
        raise UnexpectedError(f"no {BEST} among {', '.join(sorted(artifacts))}")
    return f"a run with {len(trials)} nested runs, all FINISHED {seconds:.0f} s later, with {BEST}"


def _is_over(laptop: Laptop, mlflow: str) -> bool:
    parent, _ = _search_runs(laptop, mlflow)
    return bool(parent["info"]["status"] != "RUNNING")


def _search_runs(laptop: Laptop, mlflow: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the run of the newest search, and those of its trials."""
    all_runs = runs(laptop, mlflow)
    parents = {run["info"]["run_id"]: _tags(run).get(PARENT) for run in all_runs}
    newest = all_runs[0]["info"]["run_id"]
    search = parents[newest] or newest
    trials = [run for run in all_runs if parents[run["info"]["run_id"]] == search]
    (parent,) = [run for run in all_runs if run["info"]["run_id"] == search]
    return parent, trials


def _tags(run: dict[str, Any]) -> dict[str, str]:
    return {tag["key"]: tag["value"] for tag in run["data"].get("tags", [])}
