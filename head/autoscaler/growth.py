"""Decides when to request more machines for the scale set, and how many."""

from dataclasses import dataclass

SHORTEST_S, LONGEST_S = 60.0, 15 * 60.0
SETTLE_S = 180.0
"""How long Azure's capacity may exceed its list of VMs before the autoscaler reacts."""


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
        self.reason = reason
        self.until = now + max(self._next_s, at_least_s)
        self._next_s = min(2 * self._next_s, LONGEST_S)

    def reset(self) -> None:
        """Forgets the failures after a success."""
        self.until, self.reason, self._next_s = 0, "", SHORTEST_S


@dataclass
class Gap:
    """VMs that the capacity includes and the list lacks.

    They are on their way, or an eviction or a failed allocation has left the capacity as it was.
    Azure's documents do not say which of these happens. After a while the autoscaler sends the same
    capacity again, which creates the missing VMs if Azure treats the capacity as a goal. If that
    has no effect, it adds the missing VMs to the capacity. It never lowers the capacity: Azure
    would delete VMs at work.
    """

    since: float | None = None
    sent_again: int | None = None
    """The capacity that has been sent a second time."""

    def next_capacity(self, wanted: int, capacity: int, listed: int, now: float) -> int | None:
        """Returns the capacity to request; None if there is nothing to request now.

        Args:
            wanted: VMs that Ray's autoscaler wants, more than are listed.
            listed: VMs that exist, including those being deleted.
        """
        if wanted > capacity:
            self.since = self.sent_again = None
            return wanted
        if self.since is None:
            self.since = now
        if now - self.since < SETTLE_S:
            return None
        self.since = now
        more = wanted - listed if self.sent_again == capacity else 0
        self.sent_again = capacity
        return capacity + more
