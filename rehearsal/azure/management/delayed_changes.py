"""What Azure does later than it is asked to: machines that are ready or gone by then."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from rehearsal.azure.management.autoscale_limits import autoscale
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import Resources, all_of

PAUSE_S = 0.5
"""Between two looks at what is due."""
AFTER_FAILURE_S = 5.0


def make_due_changes(azure: Azure, stopped: threading.Event) -> None:
    """Makes real whatever is due, until it is stopped; what fails is tried again."""
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
            print(f"what is due was not made: {error}", flush=True)
            pause = AFTER_FAILURE_S


def is_due(resources: Resources, since: float, now: float) -> bool:
    """Whether the resources mean something else now than they meant at `since`."""
    return any(since < moment <= now for moment in _moments(resources))


def _moments(resources: Resources) -> Iterator[float]:
    """Yields when machines of scale sets are ready, and when they are gone."""
    for scale_set in all_of(resources, "VirtualMachineScaleSet").values():
        for machine in scale_set.instance_view.get("machines", []):
            yield machine["ready"]
            if machine["gone"] is not None:
                yield machine["gone"]
