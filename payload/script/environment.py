"""What a script finds: Ray's address, MLflow, a folder that is kept."""

import json
from pathlib import Path

from payload.tracking.mlflow_experiment import EXPERIMENT_NAME
from payload.tracking.script_runs import SUBMISSION

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
