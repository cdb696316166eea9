"""vCPU quota: what machines use, and Azure's error when it is exceeded.

https://learn.microsoft.com/azure/virtual-machines/quotas
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from infra.config.vm_sizes import Machine
from rehearsal.azure.azure_errors import ArmError
from rehearsal.azure.resources.resource_kinds import Properties, Resources
from rehearsal.azure.resources.virtual_machines import virtual_machines


def used_vcpus(resources: Resources) -> Counter[str]:
    """Returns the vCPUs of all machines by quota: Spot, or the family and the location."""
    used: Counter[str] = Counter()
    for vm in virtual_machines(resources):
        machine = Machine.named(vm.size)
        spot = vm.profile.get("priority") == "Spot"
        for quota in ("lowPriorityCores",) if spot else (machine.quota_family, "cores"):
            used[quota] += machine.vcpus
    return used


def exceeded(before: Resources, after: Resources, limits: Mapping[str, int]) -> ArmError | None:
    """Returns why Azure does not make the new machines."""
    if not limits:
        return None
    used, wanted = used_vcpus(before), used_vcpus(after)
    for name, limit in limits.items():
        if wanted[name] > max(limit, used[name]):
            more = wanted[name] - used[name]
            return ArmError(
                "OperationNotAllowed",
                "Operation could not be completed as it results in exceeding approved "
                f"{name} Cores quota. Additional details - Deployment Model: Resource Manager, "
                f"Current Limit: {limit}, Current Usage: {used[name]}, Additional Required: "
                f"{more}, (Minimum) New Limit Required: {wanted[name]}.",
            )
    return None


def usages(resources: Resources, limits: Mapping[str, int]) -> Properties:
    """Returns the answer to GET .../usages.

    https://learn.microsoft.com/rest/api/compute/usage/list
    """
    used = used_vcpus(resources)
    return {
        "value": [
            {
                "unit": "Count",
                "currentValue": used[name],
                "limit": limit,
                "name": {"value": name, "localizedValue": f"{name} vCPUs"},
            }
            for name, limit in limits.items()
        ]
    }
