"""`volley cost`: what an hour costs, what was spent so far, and what a head that sleeps costs."""

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
    """Of the machines that are there now; of all that are allowed where an older head answers."""
    so_far: float
    """What the head has counted; the time since its boot where an older head answers."""
    per_hour_asleep: float | None
    """While the head sleeps; None where an older volley has declared the stack."""
    uptime_s: float
    estimate: str
    """Whose prices."""
    counted: bool
    """Whether the head has counted; an older one does not."""

    def line(self) -> str:
        if self.counted:
            return f"{self.per_hour:.2f} US dollars an hour now, {self.so_far:.2f} so far"
        return (
            f"{self.per_hour:.2f} US dollars an hour with all workers, "
            f"{self.so_far:.2f} since the head has booted {duration(self.uptime_s)} ago"
        )


def cost(stack: Stack, as_json: bool) -> int:
    """Shows the price of an hour, what was spent, and the price of an hour asleep."""
    head = Head(stack)
    found = cost_so_far(head.ask("status"), head.outputs)
    table = Table("the cluster", "US dollars")
    booted = f"since the head has booted, {duration(found.uptime_s)} ago"
    now = "an hour, now" if found.counted else "an hour with all workers"
    table.add_row(now, f"{found.per_hour:.2f}")
    table.add_row("so far" if found.counted else booted, f"{found.so_far:.2f}")
    if found.per_hour_asleep is not None:
        table.add_row("an hour while the head sleeps", f"{found.per_hour_asleep:.2f}")
    show(as_json, asdict(found), table, f"Estimate: {found.estimate}. A first `up` is extra.")
    return 0


def cost_so_far(answer: Mapping[str, Any], outputs: Outputs) -> Cost:
    """Returns what volley-head's answer says; of an older head the product of price and uptime."""
    uptime = float(answer.get("head", {}).get("uptime_s", 0))
    known = answer.get("cost") or {}
    counted = None not in (known.get("per_hour"), known.get("so_far"))
    so_far = known["so_far"] if counted else outputs.price_per_hour * uptime / 3600
    return Cost(
        per_hour=known["per_hour"] if counted else outputs.price_per_hour,
        so_far=round(so_far, 4),
        per_hour_asleep=outputs.price_per_hour_asleep,
        uptime_s=uptime,
        estimate=str(known.get("estimate") or outputs.values.get("pricePerHour", "unknown")),
        counted=counted,
    )
