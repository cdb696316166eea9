"""The MLflow runs that a script of a user has started: their end is that of the script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from payload.atomic_file import replace_text

if TYPE_CHECKING:
    from payload.tracking.mlflow_run import Status

SUBMISSION = "volley.submission"
"""The tag of all MLflow runs that a script starts."""


def end_runs(client: Any, folder: Path, status: Status, ended_ms: int) -> list[str]:
    """Ends the MLflow runs that the script has left as RUNNING; returns the ids of all its runs.

    Args:
        ended_ms: When it ended, in milliseconds since 1970. Later runs are not ended.
    """
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, f"tags.`{SUBMISSION}` = '{folder.name}'")
    for run in runs:
        if run.info.status == "RUNNING" and run.info.start_time <= ended_ms:
            client.set_terminated(run.info.run_id, status, ended_ms)
    return [run.info.run_id for run in runs]


def write_end(file: Path, server: str | None, status: Status, ended_ms: int) -> None:
    """Keeps the end of a script that MLflow has not received; see payload/run/undelivered.py.

    Args:
        server: The tracking URI; None for the database in the results.
    """
    replace_text(file, json.dumps({"server": server, "script": [status, ended_ms]}))
