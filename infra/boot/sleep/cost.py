"""What the cluster has cost so far, by the estimated prices of cluster-settings.json.

It counts since the first run on this head: a replaced head begins at 0.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cluster_settings import Dollars
from places import CLUSTER, COST, WORKERS

from .boot import Moment
from .files import read, replace

HOUR_S = 3600.0
SHORT_S = 300.0
"""A machine that was off for less has only rebooted: Azure has billed it."""


@dataclass(frozen=True)
class Cost:
    """What cost.json holds, in US dollars."""

    so_far: float
    per_hour: float
    """Now."""
    estimate: str
    """Whose prices."""
    time: float
    """Until when so_far counts, in seconds since the epoch."""
    boot: str


def update(dollars: Dollars, now: Moment) -> Cost:
    """Adds what has been spent since the last run to cost.json."""
    before = read(COST)
    per_hour = dollars.head + dollars.always + dollars.worker * _workers(now)
    spent = added(before, now, per_hour, dollars.always)
    cost = Cost(before.get("so_far", 0.0) + spent, per_hour, dollars.estimate, now.time, now.boot)
    replace(COST, asdict(cost))
    return cost


def added(before: dict[str, Any], now: Moment, per_hour: float, always: float) -> float:
    """Returns the dollars spent since cost.json was written; without one, since the boot.

    Args:
        before: What cost.json holds.
        per_hour: While the head is up, in dollars.
        always: While it sleeps, in dollars an hour.
    """
    since: float = before.get("time", now.booted)
    passed = max(0.0, now.time - since)
    slept = 0.0
    if before.get("boot", now.boot) != now.boot and passed > SHORT_S:
        slept = min(passed, max(0.0, now.booted - since))
    return ((passed - slept) * per_hour + slept * always) / HOUR_S


def _workers(now: Moment) -> int:
    """Returns how many workers are there or coming; what was written before the boot is old."""
    known = read(WORKERS)
    if known.get("time", 0) >= now.booted:
        return len(known["there"]) + len(known["coming"])
    seen = read(CLUSTER)
    nodes = seen.get("nodes", []) if seen.get("time", 0) >= now.booted else []
    return sum(node["role"] == "worker" for node in nodes)
