"""The limits of a cluster, and how near they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..cluster_settings import ClusterSettings

WARNED_FROM = 0.8
GRACE_S = 900.0
"""After a boot the budget is not enforced for this long, so that a person can raise it."""


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
    """Returns which limits are near; "" is none."""
    return "; ".join(str(limit) for limit in present if limit.used >= WARNED_FROM * limit.allowed)
