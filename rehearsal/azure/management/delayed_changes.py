"""Changes that Azure makes by itself: machines become ready or are gone, and autoscale acts.

Autoscale keeps a scale set within its limits. Its rules for CPU load have no effect, since
containers share this machine's CPUs.
https://learn.microsoft.com/azure/azure-monitor/autoscale/autoscale-understanding-settings
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from rehearsal.azure.management.management_faults import Faults
from rehearsal.azure.management.scale_set_changes import SetMachines
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import Properties, Resources, all_of

PAUSE_S = 0.5
"""Pause between two checks."""
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


def autoscale(azure: Azure) -> None:
    """Gives each scale set that has a setting a capacity within its limits."""
    for set_id, capacity in due(azure.resources(), datetime.now(UTC)):
        SetMachines(azure).resize(set_id, capacity, "", Faults())


def due(resources: Resources, now: datetime) -> Iterator[tuple[str, int]]:
    """Yields each scale set whose capacity is outside its limits, with the nearest limit."""
    for setting in all_of(resources, "AutoscaleSetting").values():
        set_id = setting.inputs["targetResourceUri"]
        if set_id in resources and setting.inputs.get("enabled"):
            profile = _valid(setting.inputs["profiles"], now)
            least, most = (int(profile["capacity"][key]) for key in ("minimum", "maximum"))
            capacity = int(resources[set_id].inputs["sku"]["capacity"])
            if not least <= capacity <= most:
                yield set_id, min(max(capacity, least), most)


def _valid(profiles: list[Properties], now: datetime) -> Properties:
    """Returns the profile for this time: one with a date comes before the default one."""
    for profile in profiles:
        if dates := profile.get("fixedDate"):
            start, end = (datetime.fromisoformat(dates[key]) for key in ("start", "end"))
            if start <= now < end:
                return profile
    return next(profile for profile in profiles if not profile.get("fixedDate"))
