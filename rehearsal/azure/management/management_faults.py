"""What goes wrong at Azure's management endpoint, switched on by whoever rehearses it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from rehearsal import shared_file


@dataclass
class Faults:
    """Nothing goes wrong by default. A number counts down as it happens."""

    machines: int | None = None
    """How many machines a scale set can have; None is enough for all."""
    sold_out_code: str = "AllocationFailed"
    """What Azure says then; SkuNotAvailable is said at once, the others when the operation ends."""
    counts: bool = False
    """Whether a larger capacity makes the difference to the one before, whatever is there."""
    keeps_capacity: bool = False
    """Whether a failed allocation and an eviction leave the capacity as it was."""
    leaves_failed: bool = False
    """Whether a failed allocation leaves a failed machine behind."""
    provisioning_fails: int = 0
    """New machines that fail although there was room for them."""
    never_join: int = 0
    """New machines that do not join Ray."""
    starts_sold_out: int = 0
    """Starts of a VM that find no machine for it; sold_out_code says how."""
    throttled: int = 0
    """Requests that are answered by 429."""
    retry_after_s: int = 1
    forbidden: int = 0
    """Requests that are answered by 403, as if a role had not propagated yet."""
    lists_fail: int = 0
    """Lists of machines, or pages of one, that are answered by 500."""
    whole_pages: int = 0
    """Pages that are answered before a list fails."""
    lost_answers: int = 0
    """Changes that are made, but whose answer does not arrive."""
    changed_between: int = 0
    """Changes of a scale set that somebody else's precedes: 412."""
    deallocations_refused: int = 0
    """Deallocations that are answered by 409."""

    def happens(self, what: str) -> bool:
        """Counts a fault down; returns whether it happens."""
        left: int = getattr(self, what)
        setattr(self, what, max(0, left - 1))
        return left > 0


@dataclass(frozen=True)
class FaultsFile:
    """The faults, for several processes."""

    path: Path

    def read(self) -> Faults:
        return Faults(**json.loads(self.path.read_text())) if self.path.exists() else Faults()

    @contextmanager
    def changed(self) -> Iterator[Faults]:
        """Yields the faults, and keeps what they have become, also after an exception."""
        with shared_file.locked(self.path):
            faults = self.read()
            try:
                yield faults
            finally:
                shared_file.replace(self.path, json.dumps(asdict(faults)))
