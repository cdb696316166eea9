"""`volley-head status`: nodes, experiments, services, saved results, JupyterLab, sleep, cost."""

import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from .. import disk
from ..cluster_settings import read_settings
from ..files import read_json
from ..machine import uptime_s
from ..paths import CGROUPS, COST, SAVED, STORED, UPDATED, WORKERS
from ..queue.cluster_state import read_cluster_state
from ..queue.record import Record, read_status
from ..queue.store import Store
from ..sleep.idle import kernels
from ..sleep.shares import as_json, dollars_by_key, read_shares
from ..sleep_record import record_of_this_boot
from .services import troubles

SERVICES = ("experiments.service", "scheduled-events.service", "identity.service")
"""volley's own services that always run."""
HOURS_PER_MONTH = 730
"""Azure's own number: https://azure.microsoft.com/pricing/calculator"""
SLEEP_SHOWN = ("idle_since", "sleeps_at", "going", "warning", "problem", "next_try")
COST_SHOWN = ("so_far", "per_hour", "estimate", "shares")


def status(store: Store, options: Namespace) -> dict[str, Any]:
    records, in_jupyter, spent = store.records(), kernels(), read_json(COST)
    cluster, sleep = read_cluster_state(), record_of_this_boot()
    shares = as_json(read_shares(spent.get("shares")))
    shown = records if options.name is None else [store.get(options.name)]
    return {
        "time": time.time(),
        "nodes": [asdict(node) for node in cluster.nodes],
        "nodes_time": cluster.time or None,
        "experiments": of_experiments(store, records, shown),
        "saved": {"time": SAVED.stat().st_mtime if SAVED.exists() else None},
        "head": {
            "uptime_s": uptime_s(),
            "memory_bytes": _memory(),
            "updated": UPDATED.stat().st_mtime if UPDATED.exists() else None,
            "disk_free_bytes": disk.free_bytes(),
            "disk_warning": disk.warning(),
        },
        "services": [asdict(trouble) for trouble in troubles()],
        "jupyter": None if in_jupyter is None else {"kernels": in_jupyter},
        "sleep": _only(SLEEP_SHOWN, asdict(sleep)) if sleep else None,
        "cost": _only(COST_SHOWN, {**spent, "shares": shares}) if spent else None,
        "stored": stored(records),
        "workers": read_json(WORKERS) or None,
    }


def of_experiments(
    store: Store, records: Sequence[Record], shown: Sequence[Record] | None = None
) -> list[dict[str, Any]]:
    """Returns each experiment's record, its payload's status, its place in the queue and its cost.

    Args:
        records: All experiments.
        shown: Those to return; None for all.
    """
    places, spent = positions(records), dollars_by_key(read_json(COST))
    return [
        {
            **asdict(record),
            "status": read_status(store.folder(record.name)) or None,
            "position": places.get(record.name),
            "cost": spent.get(record.key),
        }
        for record in (records if shown is None else shown)
    ]


def positions(records: Sequence[Record]) -> dict[str, int]:
    """Returns the place of each experiment in the queue; the next one has 1."""
    queued = [record.name for record in records if record.state == "QUEUED"]
    return {name: place for place, name in enumerate(queued, start=1)}


def stored(records: Sequence[Record]) -> dict[str, Any] | None:
    """Returns the bytes in the results account, and of each experiment that is in the queue."""
    settings = read_settings()
    if settings is None or not (counted := read_json(STORED)):
        return None
    sizes = {record.name: counted["runs"].get(record.key, 0) for record in records}
    return {
        "time": counted["time"],
        "price_gb_month": settings.prices.stored_gb * HOURS_PER_MONTH,
        "everything": counted["everything"],
        "experiments": {name: size for name, size in sizes.items() if size},
    }


def _only(keys: Sequence[str], values: dict[str, Any]) -> dict[str, Any] | None:
    return {key: values[key] for key in keys} if values else None


def _memory() -> int:
    total = 0
    for service in SERVICES:
        with suppress(OSError):  # A stopped service has no file.
            total += int((CGROUPS / service / "memory.current").read_text())
    return total
