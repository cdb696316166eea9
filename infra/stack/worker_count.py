"""Refuses an update of the scale set that would change the number of workers.

The head decides how many workers there are, not Pulumi.
"""

from __future__ import annotations

import pulumi
from pulumi_azure_native import compute

from infra.error_codes import WORKERS_HAVE_CHANGED


def refuse_other_capacity(update: pulumi.ResourceHookArgs) -> None:
    """Raises before an update of a scale set that would change its number of workers.

    Azure takes a scale set as a whole, so an update sends the capacity that the state has: Azure
    would delete workers that have come since then, or make some for a cluster that sleeps.

    Raises:
        RuntimeError: Azure has another capacity than the update would send.
    """
    inputs = update.new_inputs or {}
    sent = int(inputs["sku"]["capacity"])
    scale_set = compute.get_virtual_machine_scale_set(
        resource_group_name=inputs["resourceGroupName"], vm_scale_set_name=inputs["vmScaleSetName"]
    )
    running = int((scale_set.sku and scale_set.sku.capacity) or 0)
    if running != sent:
        raise RuntimeError(
            f"{WORKERS_HAVE_CHANGED}: the cluster has {running} workers, the stack's state says "
            f"{sent}; nothing was changed. Next: volley up (or pulumi refresh, then pulumi up)"
        )
