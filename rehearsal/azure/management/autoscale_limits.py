"""Azure's autoscale, as far as the stand-in has it: it keeps a scale set within its limits.

The rules for CPU load have no effect: containers share this machine's CPUs.
https://learn.microsoft.com/azure/azure-monitor/autoscale/autoscale-understanding-settings
"""

from __future__ import annotations

from collections.abc import Iterator

from rehearsal.azure.management.management_faults import Faults
from rehearsal.azure.management.scale_set_changes import SetMachines
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import Resources, all_of


def autoscale(azure: Azure) -> None:
    """Gives each scale set that has rules a capacity within their limits."""
    for set_id, capacity in due(azure.resources()):
        SetMachines(azure).resize(set_id, capacity, "", Faults())


def due(resources: Resources) -> Iterator[tuple[str, int]]:
    """Yields each scale set whose capacity is outside its limits, with the nearest limit."""
    for setting in all_of(resources, "AutoscaleSetting").values():
        set_id = setting.inputs["targetResourceUri"]
        if set_id in resources and setting.inputs.get("enabled"):
            (profile,) = setting.inputs["profiles"]
            least, most = (int(profile["capacity"][key]) for key in ("minimum", "maximum"))
            capacity = int(resources[set_id].inputs["sku"]["capacity"])
            if not least <= capacity <= most:
                yield set_id, min(max(capacity, least), most)
