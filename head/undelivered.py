"""head.undelivered: MLflow gets what it has not received of experiments that have ended.

Nobody starts them again, so the head delivers it, with the payload that has written it.
"""

import os
import subprocess
import sys

from .paths import RUNS
from .queue.store import Store

FILES = ("runs/*/mlflow_undelivered.json", "runs/*/*/mlflow_undelivered.json")
"""Of runs and searches, and of trials: payload/run/run_folder.py. mlflow-undelivered.service has
them too."""


def main() -> int:
    store, failed = Store(), False
    for record in store.records():
        results = RUNS / record.key
        if not record.key or not any(path for files in FILES for path in results.glob(files)):
            continue
        environment = {**os.environ, "PYTHONPATH": str(store.folder(record.name))}
        command = [sys.executable, "-m", "payload.run.undelivered", str(results)]
        failed |= subprocess.run(command, env=environment, check=False).returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
