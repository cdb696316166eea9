"""What must hold whatever happens: looked at during the soak and at its end."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from infra.stack.results_account import CONTAINER
from payload.tracking.metrics import ITERATION
from rehearsal.backend import storage_accounts
from rehearsal.scenario import head_commands
from rehearsal.scenario.context import Context
from rehearsal.scenario.laptop import Laptop, runs
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until

POINTS = 25_000
"""More than a run of the soak has; MLflow's limit for one request."""
GAP = 5
"""A gap is this many times as long as most steps between two points.

Points without steps, while all env runners are away, are not counted: they come every second."""
SAVED_S = 180.0


def each_has_one_run(context: Context, run_ids: Mapping[str, str]) -> str:
    """Checks that each experiment has a finished MLflow run of its own, and that no run is RUNNING.

    One that ended before its first checkpoint is KILLED or FAILED: its experiment began again.
    """
    with context.tunnel() as laptop:
        statuses = {
            run["info"]["run_id"]: run["info"]["status"]
            for run in runs(laptop, context.outputs["mlflow"])
        }
    numbers = Counter(statuses.values())
    seen = ", ".join(f"{number} {status}" for status, number in sorted(numbers.items()))
    wrong = [name for name, run in run_ids.items() if statuses.get(run) != "FINISHED"]
    if wrong or numbers["FINISHED"] != len(run_ids) or numbers["RUNNING"]:
        raise UnexpectedError(f"MLflow: {seen}; wrong: {', '.join(sorted(wrong)) or 'the number'}")
    return f"MLflow: {seen}"


def points_are_complete(context: Context) -> str:
    """Checks that no finished run has a point twice, an axis that goes back, or a gap."""
    problems, number = [], 0
    with context.tunnel() as laptop:
        for run in runs(laptop, context.outputs["mlflow"]):
            if run["info"]["status"] == "FINISHED":
                points = _points(laptop, context.outputs["mlflow"], run["info"]["run_id"])
                number += len(points)
                problems += [f"{run['info']['run_name']}: {text}" for text in faults_of(points)]
    if problems:
        raise UnexpectedError("; ".join(problems))
    return f"{number:,} points"


def faults_of(points: Sequence[tuple[int, int]]) -> list[str]:
    """Returns what is wrong with the points of a run: environment steps and iteration of each."""
    if len(points) < 2:
        return [f"{len(points)} points"]
    steps = [step for step, _ in points]
    differences = [later - earlier for earlier, later in itertools.pairwise(steps)]
    problems = []
    if twice := len(points) - len(set(points)):
        problems.append(f"{twice} points twice")
    if min(differences) < 0:
        problems.append("the axis goes back")
    usual = statistics.median([difference for difference in differences if difference > 0] or [1])
    if max(differences) >= GAP * usual:
        problems.append(f"a gap of {max(differences):,} steps")
    return problems


def checkpoints_are_saved(context: Context) -> str:
    """Waits until Blob has what the head has of each run: the checkpoints, and nothing older."""
    missing: set[str] = set()

    def same() -> bool:
        nonlocal missing
        on_head = head_commands.checkpoint_files(context.head)
        in_blob = {
            name
            for name in storage_accounts().list(_account(), CONTAINER, "runs/")
            if "/checkpoints/" in name
        }
        missing = on_head ^ in_blob
        return bool(on_head) and not missing

    try:
        until(same, SAVED_S, "Blob has the checkpoints", pause_s=5)
    except TimeoutError:
        raise UnexpectedError(f"{len(missing)} differ: {sorted(missing)[:3]}") from None
    return f"{len(head_commands.checkpoint_files(context.head))} files"


def _points(laptop: Laptop, mlflow: str, run_id: str) -> list[tuple[int, int]]:
    query = urlencode({"run_id": run_id, "metric_key": ITERATION, "max_results": POINTS})
    answer = laptop.get(f"{mlflow}/api/2.0/mlflow/metrics/get-history?{query}")
    return [(int(point.get("step", 0)), int(point["value"])) for point in answer["metrics"]]


def _account() -> str:
    (account,) = storage_accounts().accounts()
    return account
