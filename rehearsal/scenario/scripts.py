"""The act `script`: the example programs run on the cluster, and one of them makes it grow."""

from __future__ import annotations

import json
from pathlib import Path

from rehearsal.scenario.context import Context
from rehearsal.scenario.laptop import Volley, is_of_script, runs
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until

EXAMPLES = Path(__file__).parents[2] / "examples"
ARGUMENTS = {
    # The head has one CPU for Ray: the second task waits for a worker.
    "parallel_episodes": ("--tasks", "2", "--seconds", "90"),
    "tune_asha": ("--samples", "3"),
    "rllib_entry_script": (
        *("--run", "PPO", "--stop", '{"time_total_s": 15}'),
        *("--config", '{"num_env_runners": 0, "train_batch_size": 500}'),
    ),
}
MLFLOW_RUNS = 1 + 3 + 1
ENDS_S = 400.0


def scripts(context: Context, volley: Volley) -> str:
    """Submits the three examples, waits for their end, and pulls what they have written."""
    failing = volley.folder / "exits.py"
    failing.write_text("import sys\nsys.exit(3)\n")
    for name, arguments in ARGUMENTS.items():
        volley.type("submit", str(EXAMPLES / f"{name}.py"), "--", *arguments)
    volley.type("submit", str(failing))
    if "parallel-episodes (script)" not in volley.type("status"):
        raise UnexpectedError("volley status does not show a script")
    until(lambda: volley.states().get("parallel-episodes") == "RUNNING", 60, "the first one runs")
    names = {name.replace("_", "-") for name in ARGUMENTS}
    until(lambda: _over(volley) >= {*names, "exits"}, ENDS_S, "the scripts end")
    states, reason = volley.states(), volley.experiments()["exits"]["reason"]
    if any(states[name] != "FINISHED" for name in names) or reason != "exit code 3":
        raise UnexpectedError(f"{states}, exits: {reason}")
    volley.type("pull", "parallel-episodes")
    (file,) = (volley.folder / "results/parallel-episodes").rglob("answer.json")
    answer = json.loads(file.read_text())
    if len(answer["machines"]) != 2:  # The head and a worker.
        raise UnexpectedError(f"tasks ran on {answer['machines']}")
    return (
        f"tasks on {len(answer['machines'])} machines, {answer['episodes']} episodes; "
        f"{_finished_runs(context)} MLflow runs FINISHED; exits: {reason}"
    )


def _over(volley: Volley) -> set[str]:
    return {name for name, state in volley.states().items() if state in ("FINISHED", "FAILED")}


def _finished_runs(context: Context) -> int:
    """Returns the number of MLflow runs of scripts, all of which must be finished."""
    with context.tunnel() as laptop:
        tagged = [run for run in runs(laptop, context.outputs["mlflow"]) if is_of_script(run)]
    statuses = [run["info"]["status"] for run in tagged]
    if statuses != ["FINISHED"] * MLFLOW_RUNS:
        raise UnexpectedError(f"MLflow runs of scripts: {statuses}")
    return len(statuses)
