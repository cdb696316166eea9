"""Changes that Azure makes later: machines of scale sets become ready, or are gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from rehearsal.azure.management.autoscale_limits import autoscale
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import Resources, all_of

PAUSE_S = 0.5
"""Between two checks."""
AFTER_FAILURE_S = 5.0


def make_due_changes(azure: Azure, stopped: threading.Event) -> None:
    """Makes changes when they are due, until it is stopped; retries those that fail."""
    done = 0.0
    pause = PAUSE_S
    while not stopped.wait(pause):
        now = time.time()
        pause = PAUSE_S
        try:
            if is_due(azure.resources(), done, now) or azure.is_unfinished():
                with azure.changing():
                    pass
            autoscale(azure)
            done = now
        except Exception as error:
            print(f"a delayed change failed: {error}", flush=True)
            pause = AFTER_FAILURE_S


def is_due(resources: Resources, since: float, now: float) -> bool:
    """Whether the state of a machine has changed by itself between `since` and `now`."""
    return any(since < moment <= now for moment in _moments(resources))


def _moments(resources: Resources) -> Iterator[float]:
    """Yields when machines of scale sets are ready, and when they are gone."""
    for scale_set in all_of(resources, "VirtualMachineScaleSet").values():
        for machine in scale_set.instance_view.get("machines", []):
            yield machine["ready"]
            if machine["gone"] is not None:
                yield machine["gone"]
