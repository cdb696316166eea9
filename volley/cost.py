"""`volley cost`: the price of an hour now and asleep, and the cost so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from volley.head import Head
from volley.stack import Outputs, Stack
from volley.tables import duration, show


@dataclass(frozen=True)
class Cost:
    """US dollars, estimated."""

    per_hour: float
    """Of the present machines; if an older head answers, of all allowed machines."""
    so_far: float
    """As the head has counted it; if an older head answers, since its boot."""
    per_hour_asleep: float | None
    """While the head sleeps; None if an older version of volley created the stack."""
    uptime_s: float
    estimate: str
    """Source and date of the prices."""
    counted: bool
    """Whether the head counts; an older one does not."""

    def line(self) -> str:
        if self.counted:
            return (
                f"about ${self.per_hour:.2f}/h now, ${self.so_far:.2f} since this head was created"
            )
        return (
            f"about ${self.per_hour:.2f}/h with all workers, ${self.so_far:.2f} since the head "
            f"booted {duration(self.uptime_s)} ago"
        )


def cost(stack: Stack, as_json: bool) -> int:
    """Shows the price of an hour, the cost so far, and the price of an hour asleep."""
    head = Head(stack)
    estimate = cost_so_far(head.ask("status"), head.outputs)
    table = Table("", "US dollars")
    booted = f"since the head booted, {duration(estimate.uptime_s)} ago"
    table.add_row(
        "per hour, now" if estimate.counted else "per hour with all workers",
        f"{estimate.per_hour:.2f}",
    )
    table.add_row(
        "since this head was created" if estimate.counted else booted, f"{estimate.so_far:.2f}"
    )
    if estimate.per_hour_asleep is not None:
        table.add_row("per hour, asleep", f"{estimate.per_hour_asleep:.2f}")
    source = f"Estimate: {estimate.estimate}. The first `volley up` is extra."
    show(as_json, asdict(estimate), table, source)
    return 0


def cost_so_far(answer: Mapping[str, Any], outputs: Outputs) -> Cost:
    """Returns the cost in volley-head's answer; for an older head, price times uptime."""
    uptime = float(answer.get("head", {}).get("uptime_s", 0))
    cost = answer.get("cost") or {}
    counted = None not in (cost.get("per_hour"), cost.get("so_far"))
    so_far = cost["so_far"] if counted else outputs.price_per_hour * uptime / 3600
    return Cost(
        per_hour=cost["per_hour"] if counted else outputs.price_per_hour,
        so_far=round(so_far, 4),
        per_hour_asleep=outputs.price_per_hour_asleep,
        uptime_s=uptime,
        estimate=str(cost.get("estimate") or outputs.values.get("pricePerHour", "unknown")),
        counted=counted,
    )
