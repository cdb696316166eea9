"""The limits of a cluster, how near they are, and the warning on the MLflow runs that train."""

import json
import os
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass

from ..cluster_settings import ClusterSettings
from ..queue.record import read_status
from ..queue.store import Store

WARNED_FROM = 0.8
GRACE_S = 900.0
"""After a boot the budget is not enforced for this long, so that a person can raise it."""
TIMEOUT_S = 5.0
"""Timeout of a request to MLflow."""


@dataclass(frozen=True)
class Limit:
    """A limit of the cluster, and how much of it is used."""

    name: str
    used: float
    allowed: float
    unit: str
    enforced: bool = True
    """Whether the head sleeps once it is reached."""

    def __str__(self) -> str:
        return f"{self.name}: {self.used:.2f} of {self.allowed:g} {self.unit}"

    @property
    def reached(self) -> bool:
        return self.enforced and self.used >= self.allowed


def limits(settings: ClusterSettings, up_s: float, so_far: float) -> list[Limit]:
    """Returns the limits that are set.

    Args:
        up_s: Seconds since the boot.
        so_far: What the cluster has cost, in dollars.
    """
    hours = Limit("max_hours", up_s / 3600, settings.max_hours, "hours since the start")
    budget = Limit("budget", so_far, settings.budget, "dollars", enforced=up_s >= GRACE_S)
    return [limit for limit in (hours, budget) if limit.allowed]


def warning(present: Iterable[Limit]) -> str:
    """Returns which limits are near; "" if none is."""
    return "; ".join(str(limit) for limit in present if limit.used >= WARNED_FROM * limit.allowed)


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
