"""The cost of the cluster so far, by the estimated prices of cluster-settings.json.

The count starts with the first run on this head: a replaced head begins at 0.
"""

from dataclasses import asdict, dataclass, field
from typing import Any

from ..cluster_settings import Prices
from ..files import read_json, replace_json
from ..machine import Moment
from ..paths import COST, STORED, WORKERS
from ..queue.cluster_state import read_cluster_state
from ..queue.store import Store
from .shares import Interval, as_json, divided

HOUR_S = 3600.0
GB = 2**30
"""Azure's own: https://azure.microsoft.com/pricing/details/storage/blobs"""
SHORT_S = 300.0
"""A machine that was off for less time has only rebooted: Azure has billed it."""


@dataclass(frozen=True)
class Cost:
    """The content of cost.json, in US dollars."""

    so_far: float
    per_hour: float
    """The current price."""
    estimate: str
    """Location and date of the prices."""
    time: float
    """The end of the time that so_far covers, in seconds since the epoch."""
    boot: str
    booted: float
    """When that boot was, by the clock of `time`."""
    shares: list[dict[str, Any]] = field(default_factory=list)
    """Of shares.py: by experiment and person."""


def update(prices: Prices, now: Moment) -> Cost:
    """Adds what has been spent since the last run to cost.json."""
    before = read_json(COST)
    always = prices.always + prices.stored_gb * read_json(STORED).get("everything", 0) / GB
    per_hour = prices.head + always + prices.worker * _workers(now)
    up_s, asleep_s = passed(before, now)
    spent = up_s * per_hour / HOUR_S
    so_far = before.get("so_far", 0.0) + spent + asleep_s * always / HOUR_S
    cpus = sum(node.cpus for node in read_cluster_state().nodes)
    interval = Interval(now.time - up_s, now.time, spent, cpus)
    shares = as_json(divided(before.get("shares"), interval, Store().records()))
    cost = Cost(so_far, per_hour, prices.estimate, now.time, now.boot, now.booted, shares)
    try:
        replace_json(COST, asdict(cost))
    except OSError as error:  # The next run adds this time, too.
        print(f"{COST}: {error}", flush=True)
    return cost


def passed(before: dict[str, Any], now: Moment) -> tuple[float, float]:
    """Returns the seconds up and asleep since cost.json was written; without one, since the boot.

    Args:
        before: The content of cost.json.
    """
    since: float = before.get("time", now.booted)
    if before.get("boot") == now.boot:
        since += now.since_clock_of(before.get("booted", 0))
    whole = max(0.0, now.time - since)
    asleep = 0.0
    if before.get("boot", now.boot) != now.boot and whole > SHORT_S:
        asleep = min(whole, max(0.0, now.booted - since))
    return whole - asleep, asleep


def _workers(now: Moment) -> int:
    """Returns how many workers exist or are coming; files written before the boot are old."""
    workers = read_json(WORKERS)
    if workers.get("time", 0) >= now.booted:
        return len(workers["there"]) + len(workers["coming"])
    cluster = read_cluster_state()
    nodes = cluster.nodes if cluster.time >= now.booted else []
    return sum(node.role == "worker" for node in nodes)
