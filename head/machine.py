"""The current boot of this machine."""

import os
import time
from dataclasses import dataclass

from .paths import PROC


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
