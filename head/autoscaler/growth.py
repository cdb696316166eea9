"""Decides when to request more machines for the scale set, and how many."""

from dataclasses import dataclass

SHORTEST_S, LONGEST_S = 60.0, 15 * 60.0
SETTLE_S = 180.0
"""How long after a change of the capacity or of the list of VMs more VMs may be on their way."""

NO_SPOT = "AzureSpotFeatureNotEnabledForSubscription"
"""https://learn.microsoft.com/azure/virtual-machines/error-codes-spot"""
SPOT_REMEDY = "Next: pulumi config set workerSpot false, then volley up"


@dataclass
class Pause:
    """The pause between requests after a failure; it doubles with each failure."""

    until: float = 0
    """By the clock of `now`, which nobody sets."""
    reason: str = ""
    _next_s: float = SHORTEST_S

    def begin(self, reason: str, now: float, at_least_s: float = 0) -> None:
        """Begins the next pause; a failure during a pause does not extend it."""
        if now < self.until:
            return
        if NO_SPOT in reason:
            reason, at_least_s = f"{reason} {SPOT_REMEDY}", LONGEST_S
        self.reason = reason
        self.until = now + max(self._next_s, at_least_s)
        self._next_s = min(2 * self._next_s, LONGEST_S)

    def reset(self) -> None:
        """Forgets the failures after a success."""
        self.until, self.reason, self._next_s = 0, "", SHORTEST_S


def next_capacity(wanted: int, capacity: int, listed: int, settled: bool) -> int | None:
    """Returns the capacity to request; None if there is nothing to request now.

    Azure creates what a new capacity exceeds the old one by, however many VMs exist, and deletes
    VMs for a lower one (https://github.com/dataplat/dbatools/issues/10540). The capacity can count
    VMs that were deleted by name, evicted or never allocated: it has to rise by those missing.

    Args:
        wanted: VMs that Ray's autoscaler wants, more than are listed or none.
        listed: VMs that exist, including those being deleted.
        settled: Whether the list has had time to show all VMs that are on their way.
    """
    if listed >= capacity:
        return wanted if wanted > capacity else None
    if not settled:
        return None
    # Without VMs a lower capacity deletes none, and the next request is immediate.
    return capacity + wanted - listed if listed else 0
