"""What infra/boot/sleep says of itself, as far as it is about this boot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from places import SLEEP

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    return BOOT_ID.read_text().strip()


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
