"""This boot of the head, and what infra/boot/sleep says of itself since then."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from places import SLEEP

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
UPTIME, FIRST_PROCESS = Path("/proc/uptime"), Path("/proc/1/stat")


def boot_id() -> str:
    return BOOT_ID.read_text().strip()


def uptime_s() -> float:
    """Returns for how long the machine's first process has run: a container's uptime is its host's.

    Field 22 of /proc/1/stat is its start, in ticks since the boot: proc_pid_stat(5).
    """
    ticks = int(FIRST_PROCESS.read_text().rpartition(")")[2].split()[19])
    return float(UPTIME.read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def read_json(path: Path) -> dict[str, Any] | None:
    """Returns the object in a file; None where there is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found


def sleep_state() -> dict[str, Any] | None:
    """Returns what sleep.json says; None if it says nothing of this boot."""
    found = read_json(SLEEP)
    return found if found and found["boot"] == boot_id() else None


def is_going_to_sleep() -> bool:
    return bool((sleep_state() or {}).get("going"))
