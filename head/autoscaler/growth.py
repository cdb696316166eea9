"""When the scale set is asked for more machines, and for how many."""

from dataclasses import dataclass

SHORTEST_S, LONGEST_S = 60.0, 15 * 60.0
SETTLE_S = 180.0
"""How long Azure's capacity may be ahead of its list of VMs before anything is made of it."""


@dataclass
class Pause:
    """How long nothing is asked for after a failure: each time twice as long."""

    until: float = 0
    """In seconds since the epoch."""
    reason: str = ""
    _next_s: float = SHORTEST_S

    def begin(self, reason: str, now: float, at_least_s: float = 0) -> None:
        """Begins the next pause; in a pause, a failure is one more of the same."""
        if now < self.until:
            return
        self.reason = reason
        self.until = now + max(self._next_s, at_least_s)
        self._next_s = min(2 * self._next_s, LONGEST_S)

    def reset(self) -> None:
        """Forgets the failures: it has worked."""
        self.until, self.reason, self._next_s = 0, "", SHORTEST_S


@dataclass
class Gap:
    """VMs that the capacity counts and the list lacks.

    They are on their way, or an eviction or a failed allocation has left the capacity as it was.
    Azure's documents do not say which of these happens: after a while the same capacity is sent
    again, which makes what is missing where capacity is a goal; if that has changed nothing, a
    capacity that is larger by what is missing. It is never lowered: that deletes VMs at work.
    """

    since: float | None = None
    sent_again: int | None = None
    """The capacity that has been sent a second time."""

    def next_capacity(self, wanted: int, capacity: int, listed: int, now: float) -> int | None:
        """Returns the capacity to ask for; None: nothing has to be asked for now.

        Args:
            wanted: VMs that Ray's autoscaler wants, more than are listed.
            listed: VMs that exist, those that are being deleted too.
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
