"""When this run is, and since when the machine has been up."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sleep_state import boot_id, uptime_s


@dataclass(frozen=True)
class Moment:
    """Times are seconds since the epoch."""

    time: float
    boot: str
    """The kernel's id of this boot."""
    booted: float

    @property
    def up_s(self) -> float:
        return self.time - self.booted


def moment() -> Moment:
    """Returns the present one."""
    now = time.time()
    return Moment(now, boot_id(), now - uptime_s())
