"""The warning of a limit as a tag on the MLflow runs that train."""

from __future__ import annotations

import json
import os
import urllib.request

from experiment_record import read_status
from experiment_store import Store
from places import EXPERIMENTS

TIMEOUT_S = 5.0


def tag_runs(warning: str, known: list[str]) -> list[str]:
    """Tags the runs that train, as far as MLflow answers; returns all that have the tag.

    Args:
        known: Runs that have it already.
    """
    store, server = Store(EXPERIMENTS), os.environ.get("MLFLOW_TRACKING_URI", "")
    live = [read_status(store.folder(one.name)) or {} for one in store.records() if one.live]
    runs = {one["mlflow_run"] for one in live if one.get("mlflow_run")} - set(known)
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
    return [*known, *tagged]
