"""`volley cost`: the price of an hour now and asleep, and the cost so far."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from volley.head import Head
from volley.stack import Outputs, Stack
from volley.tables import dollars, duration, show

BY_UP = "(volley up)"
DIVIDED = (
    "Experiments share the cost of each minute by the CPUs that they hold. GPUs do not count, and "
    "the cost of idle CPUs belongs to nobody."
)


@dataclass(frozen=True)
class Cost:
    """US dollars, estimated."""

    per_hour: float
    """Price of the existing machines; before the head has counted, of all allowed ones."""
    so_far: float
    """As the head has counted it; before that, the price of the time since its boot."""
    per_hour_asleep: float
    """While the head sleeps."""
    uptime_s: float
    estimate: str
    """Source and date of the prices."""
    counted: bool
    """Whether the head has counted, which it does a minute after its software is installed."""

    def line(self) -> str:
        if self.counted:
            return (
                f"about ${self.per_hour:.2f}/h now, ${self.so_far:.2f} since this head was created"
            )
        return (
            f"about ${self.per_hour:.2f}/h with all workers, ${self.so_far:.2f} since the head "
            f"booted {duration(self.uptime_s)} ago"
        )


def cost(options: argparse.Namespace) -> int:
    """Shows the price of an hour, the cost so far, and the price of an hour asleep."""
    head = Head(Stack(options.stack))
    answer = head.ask("status")
    estimate = cost_so_far(answer, head.outputs)
    table = Table("", "US dollars")
    booted = f"since the head booted, {duration(estimate.uptime_s)} ago"
    table.add_row(
        "per hour, now" if estimate.counted else "per hour with all workers",
        f"{estimate.per_hour:.2f}",
    )
    table.add_row(
        "since this head was created" if estimate.counted else booted, f"{estimate.so_far:.2f}"
    )
    table.add_row("per hour, asleep", f"{estimate.per_hour_asleep:.2f}")
    source = f"Estimate: {estimate.estimate}. The first `volley up` is extra."
    stored = answer.get("stored")
    divided = shares_tables(answer, estimate.so_far)
    parts = [table, *divided, *([stored_table(stored)] if stored else []), source]
    shares = (answer.get("cost") or {}).get("shares") or []
    show(options.as_json, {**asdict(estimate), "stored": stored, "shares": shares}, *parts)
    return 0


def shares_tables(answer: Mapping[str, Any], so_far: float) -> list[RenderableType]:
    """Returns what each experiment and each person has cost, the most expensive first.

    Args:
        answer: volley-head's.
        so_far: The cost of the cluster, in dollars; what is left of it is nobody's.
    """
    shares = (answer.get("cost") or {}).get("shares") or []
    if not shares:
        return []
    experiments = Table("experiment", "submitted by", "CPU hours", "US dollars")
    people = Table("submitted by", "experiments", "CPU hours", "US dollars")
    nobody = so_far - sum(share["dollars"] for share in shares)
    for (name, person), (cpu_hours, spent, _) in _sums(shares, "name", "submitted_by"):
        experiments.add_row(name, person or BY_UP, f"{cpu_hours:,.1f}", dollars(spent))
    for (person,), (cpu_hours, spent, count) in _sums(shares, "submitted_by"):
        people.add_row(person or BY_UP, str(count), f"{cpu_hours:,.1f}", dollars(spent))
    experiments.add_row("nobody: idle, starting, asleep", "", "", dollars(max(0.0, nobody)))
    return [experiments, people, DIVIDED]


def _sums(
    shares: Sequence[Mapping[str, Any]], *keys: str
) -> list[tuple[tuple[str, ...], tuple[float, float, int]]]:
    """Returns CPU hours, dollars and the number of experiments by the values of keys."""
    sums: dict[tuple[str, ...], tuple[float, float, set[str]]] = {}
    for share in shares:
        by = tuple(str(share[key]) for key in keys)
        cpu_hours, spent, names = sums.get(by, (0.0, 0.0, set()))
        sums[by] = cpu_hours + share["cpu_hours"], spent + share["dollars"], {*names, share["name"]}
    ranked = sorted(sums.items(), key=lambda item: -item[1][1])
    return [(by, (cpu_hours, spent, len(names))) for by, (cpu_hours, spent, names) in ranked]


def stored_table(stored: Mapping[str, Any]) -> RenderableType:
    """Returns the size and the price of the results account by experiment, the largest first."""
    sizes = sorted(stored["experiments"].items(), key=lambda item: -item[1])
    known = sum(size for _, size in sizes)
    table = Table("results account", "GB", "US dollars a month")
    others = ("MLflow, Python environment, other runs", stored["everything"] - known)
    price = stored["price_gb_month"]
    for name, size in [*sizes, others, ("all", stored["everything"])]:
        gb = size / 2**30
        table.add_row(name, f"{gb:.2f}", f"{gb * price:.2f}")
    return table


def cost_so_far(answer: Mapping[str, Any], outputs: Outputs) -> Cost:
    """Returns the cost in volley-head's answer; price times uptime before the head has counted."""
    uptime, price = float(answer["head"]["uptime_s"]), outputs.price_per_hour
    uncounted: dict[str, Any] = {
        "per_hour": price,
        "so_far": price * uptime / 3600,
        "estimate": f"{price:.2f} US dollars ({outputs.values.get('pricesFrom')})",
    }
    cost = answer.get("cost") or uncounted
    return Cost(
        per_hour=cost["per_hour"],
        so_far=round(cost["so_far"], 4),
        per_hour_asleep=outputs.price_per_hour_asleep,
        uptime_s=uptime,
        estimate=cost["estimate"],
        counted=cost is not uncounted,
    )
