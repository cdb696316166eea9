"""The current boot of this machine."""

import os
import time
from dataclasses import dataclass

from .paths import PROC

STEADY_S = 60.0
"""NTP slews a clock by less between two runs; more, and it has been set."""


@dataclass(frozen=True)
class Moment:
    """A time on this machine; all times are seconds since the epoch."""

    time: float
    boot: str
    """The kernel's id of this boot."""
    booted: float

    @property
    def up_s(self) -> float:
        return self.time - self.booted

    def since_clock_of(self, booted: float) -> float:
        """Returns by how many seconds the clock has been set since it told the time of this boot.

        Args:
            booted: That time, as it was told then; 0 if nobody has kept it.
        """
        ahead = self.booted - booted
        return ahead if booted and abs(ahead) > STEADY_S else 0.0


def present_moment() -> Moment:
    now = time.time()
    return Moment(now, boot_id(), now - uptime_s())


def boot_id() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def uptime_s() -> float:
    """Returns how long the machine's first process has run: a container's uptime is its host's.

    Field 22 of /proc/1/stat is its start, in ticks since the boot: proc_pid_stat(5).
    """
    ticks = int((PROC / "1/stat").read_text().rpartition(")")[2].split()[19])
    host_uptime_s = float((PROC / "uptime").read_text().split()[0])
    return host_uptime_s - ticks / os.sysconf("SC_CLK_TCK")
