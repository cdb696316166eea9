"""`volley-head status`: the nodes, the experiments, and what is saved; from files alone."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiment_record import Record, read_status
from experiment_store import Store
from places import CLUSTER, COST, SAVED, WORKERS
from sleep_state import read_json, sleep_state, uptime_s

SERVICES = ("experiments.service", "scheduled-events.service")
"""Those that run all the time, besides Ray and MLflow."""
CGROUPS = Path("/sys/fs/cgroup/system.slice")
SLEEP_SHOWN = ("idle_since", "sleeps_at", "going", "warning", "problem", "next_try")
COST_SHOWN = ("so_far", "per_hour", "estimate")


def status(store: Store, options: Namespace) -> dict[str, Any]:
    records = store.records()
    places = positions(records)
    shown = records if options.name is None else [store.get(options.name)]
    return {
        "time": time.time(),
        "nodes": nodes(),
        "nodes_time": _seen().get("time"),
        "experiments": [
            {
                **asdict(record),
                "status": read_status(store.folder(record.name)),
                "position": places.get(record.name),
            }
            for record in shown
        ],
        "saved": {"time": SAVED.stat().st_mtime if SAVED.exists() else None},
        "head": {"uptime_s": uptime_s(), "memory_bytes": _memory()},
        "sleep": _only(SLEEP_SHOWN, sleep_state()),
        "cost": _only(COST_SHOWN, read_json(COST)),
        "workers": read_json(WORKERS),
    }


def positions(records: Sequence[Record]) -> dict[str, int]:
    """Returns the place of each experiment in the queue; the next one has 1."""
    queued = [record.name for record in records if record.state == "QUEUED"]
    return {name: place for place, name in enumerate(queued, start=1)}


def nodes() -> list[dict[str, Any]]:
    """Returns the nodes that the queue has seen last; none before it has seen any."""
    found: list[dict[str, Any]] = _seen().get("nodes", [])
    return found


def _seen() -> dict[str, Any]:
    """Returns what the queue has written of the cluster; nothing while it has not."""
    return read_json(CLUSTER) or {}


def _only(keys: Sequence[str], found: dict[str, Any] | None) -> dict[str, Any] | None:
    return found and {key: found[key] for key in keys}


def _memory() -> int:
    total = 0
    for service in SERVICES:
        with suppress(OSError):  # One that does not run has no file.
            total += int((CGROUPS / service / "memory.current").read_text())
    return total
