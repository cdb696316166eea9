"""head.undelivered: MLflow gets what it has not received of experiments that have ended.

Nobody starts them again, so the head delivers it, with the payload that has written it.
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from .files import replace_json
from .paths import RUNS
from .queue.plan import name_in
from .queue.record import STATUS, read_status
from .queue.store import Store

FILES = ("runs/*/mlflow_undelivered.json", "runs/*/*/mlflow_undelivered.json")
"""Of runs and searches, and of trials: payload/run/run_folder.py. mlflow-undelivered.service has
them too."""
MLFLOW_RUN = "mlflow_run.json"
"""In a run's folder: its MLflow run."""


def main() -> int:
    store, failed = Store(), False
    records = {record.key: record for record in store.records()}
    named = {record.name: record for record in records.values()}
    for results in RUNS.glob("[!.]*"):
        if not any(path for files in FILES for path in results.glob(files)):
            continue
        # Of earlier content of a name, the payload is gone; that of the name reads it too.
        record = records.get(results.name) or named.get(name_in(results.name))
        if record is None or not (store.folder(record.name) / "payload").is_dir():
            continue
        environment = {**os.environ, "PYTHONPATH": str(store.folder(record.name))}
        command = [sys.executable, "-m", "payload.run.undelivered", str(results)]
        failed |= subprocess.run(command, env=environment, check=False).returncode != 0
        if record.key == results.name:
            name_mlflow_run(store.folder(record.name))
    return int(failed)


def name_mlflow_run(folder: Path) -> None:
    """Adds the id of the MLflow run to status.json, if MLflow never answered while it trained."""
    status = read_status(folder)
    with suppress(OSError, ValueError, LookupError, TypeError):
        run = json.loads(Path(status["run"], MLFLOW_RUN).read_text())
        if not status.get("mlflow_run"):
            replace_json(folder / STATUS, {**status, "mlflow_run": run["run_id"]})


if __name__ == "__main__":
    sys.exit(main())
