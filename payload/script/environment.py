"""What a script finds: Ray's address, MLflow, a folder that is kept."""

import json
from pathlib import Path
from typing import Any

from payload.tracking.mlflow_experiment import EXPERIMENT_NAME
from payload.tracking.mlflow_run import Status

SUBMISSION = "volley.submission"
"""The tag of all MLflow runs that a script starts."""
OUTPUT = "output"
"""In the run's folder: VOLLEY_RESULTS."""


def script_variables(folder: Path, tracking_uri: str) -> dict[str, str]:
    """Returns environment variables of the script and of its workers.

    MLflow tags each run with what is in MLFLOW_RUN_CONTEXT (SystemEnvironmentContext).
    """
    output = folder / OUTPUT
    output.mkdir(exist_ok=True)
    return {
        "VOLLEY_RESULTS": str(output.absolute()),
        "MLFLOW_TRACKING_URI": tracking_uri,
        "MLFLOW_EXPERIMENT_NAME": EXPERIMENT_NAME,
        "MLFLOW_RUN_CONTEXT": json.dumps({SUBMISSION: folder.name}),
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


def end_runs(client: Any, folder: Path, status: Status) -> list[str]:
    """Ends the MLflow runs that the script has left as RUNNING; returns the ids of all its runs."""
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, f"tags.`{SUBMISSION}` = '{folder.name}'")
    for run in runs:
        if run.info.status == "RUNNING":
            client.set_terminated(run.info.run_id, status)
    return [run.info.run_id for run in runs]
