"""What must not grow while a cluster lives: memory, open files and disk of the head's services."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from statistics import median

from rehearsal.machines.nspawn_machine import Machine

SERVICES = "gcs_server|raylet/raylet|dashboard.py|monitor.py|head.queue|mlflow"
SCRIPT = f"""
rss=0 files=0
for process in $(pgrep -f '{SERVICES}'); do
  pages=$(cut -d' ' -f2 /proc/$process/statm) && rss=$((rss + pages))
  files=$((files + $(ls /proc/$process/fd | wc -l)))
done 2>/dev/null
disk=$(df -k --output=used / | tail -1)
runs=$(du -sk /var/lib/volley/runs | cut -f1)
echo $((rss * 4 / 1024)) $files $(((disk - runs) / 1024))
"""


@dataclass(frozen=True)
class VitalSigns:
    time: float
    """In seconds since the epoch."""
    memory_mib: float
    files: float
    """Open file descriptors."""
    disk_mib: float
    """Without the runs, which grow with the experiments."""


GROWTH_PER_H = {"memory_mib": 600.0, "files": 300.0, "disk_mib": 1500.0}
"""What the services may grow in an hour in which a new experiment ends every minute."""


ENOUGH = 15
"""How many signs, one a minute, show a trend."""


def take(head: Machine) -> VitalSigns:
    memory, files, disk = map(float, head.run("bash", "-c", SCRIPT).stdout.split())
    return VitalSigns(time.time(), memory, files, disk)


def growing(signs: Sequence[VitalSigns]) -> list[str]:
    """Returns what grows faster than it may; the first third of the time is the start.

    A soak of a few minutes says nothing about an hour.
    """
    later = signs[len(signs) // 3 :]
    if len(later) < ENOUGH:
        return []
    problems = []
    for field in fields(VitalSigns)[1:]:
        # Sen (1968): least squares would count a fault that fills the disk for a minute.
        per_h = median(
            (getattr(b, field.name) - getattr(a, field.name)) / (b.time - a.time) * 3600
            for a, b in combinations(later, 2)
        )
        if per_h > GROWTH_PER_H[field.name]:
            problems.append(f"{field.name}: {per_h:+.0f} in an hour")
    return problems


def summary(signs: Sequence[VitalSigns]) -> str:
    return ", ".join(
        f"{field.name} {median(getattr(sign, field.name) for sign in signs):,.0f}"
        for field in fields(VitalSigns)[1:]
    )
