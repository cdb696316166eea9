"""The warning of a limit as a tag on the MLflow runs that train."""

from __future__ import annotations

import json
import os
import urllib.request

from ..queue.record import read_status
from ..queue.store import Store

TIMEOUT_S = 5.0


def tag_runs(warning: str, tagged_before: list[str]) -> list[str]:
    """Tags the live runs, as far as MLflow answers; returns all runs that have the tag."""
    store, server = Store(), os.environ.get("MLFLOW_TRACKING_URI", "")
    live = [read_status(store.folder(record.name)) for record in store.records() if record.live]
    runs = {status["mlflow_run"] for status in live if status.get("mlflow_run")}
    runs -= set(tagged_before)
    tagged = []
    for run in sorted(runs) if server.startswith("http") else []:
        tag = json.dumps({"run_id": run, "key": "volley.warning", "value": warning})
        url = f"{server.rstrip('/')}/api/2.0/mlflow/runs/set-tag"
        request = urllib.request.Request(url, tag.encode(), {"Content-Type": "application/json"})
        try:
            urllib.request.urlopen(request, timeout=TIMEOUT_S).close()
            tagged.append(run)
        except OSError as error:
            print(f"MLflow: {error}", flush=True)
    return [*tagged_before, *tagged]
