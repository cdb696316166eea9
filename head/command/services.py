"""Services of the head that have failed or restart again and again, as systemd sees them."""

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

UNITS = (
    *("ray-head", "experiments", "mlflow", "identity"),
    *("scheduled-events", "sync-results", "cluster-sleep"),
)
PROPERTIES = "Id,ActiveState,NRestarts,ActiveEnterTimestampMonotonic"
MOST_RESTARTS = 2
"""Restarts that a service may have had before it is steady again."""
STEADY_S = 120.0
"""A service that has run for so long does not restart again and again."""
TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Trouble:
    """A service that does not work."""

    unit: str
    """Its name, without the suffix .service."""
    restarts: int
    """How often systemd has restarted it in a row; 0 if it has failed and stays so."""


def troubles() -> list[Trouble]:
    """Returns the services that do not work; none where systemd does not answer."""
    units = [f"{unit}.service" for unit in UNITS]
    command = ["systemctl", "show", f"--property={PROPERTIES}", *units]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return list(_troubles(answer.stdout, time.monotonic()))


def _troubles(text: str, now: float) -> Iterator[Trouble]:
    for block in text.split("\n\n"):
        values = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        restarts = int(values.get("NRestarts") or 0)
        state = values.get("ActiveState", "")
        active_s = now - int(values.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
        is_steady = state == "inactive" or (state == "active" and active_s > STEADY_S)
        if state == "failed" or (restarts > MOST_RESTARTS and not is_steady):
            yield Trouble(values.get("Id", "").removesuffix(".service"), restarts)
