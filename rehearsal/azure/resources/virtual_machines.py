"""The declared virtual machines, those of scale sets too, and the vCPUs that they use.

https://learn.microsoft.com/azure/virtual-machines/quotas
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rehearsal.azure.azure_errors import ArmError
from rehearsal.azure.resources import resource_skus
from rehearsal.azure.resources.resource_kinds import Properties, Resource, Resources, all_of
from rehearsal.azure.resources.scale_set_machines import machines_of
from rehearsal.azure.resources.virtual_network import FIRST_HOST, Subnet, subnets

RUNS = "PowerState/running"
NOT_RUNNING = ArmError(
    "OperationNotAllowed", "Cannot modify extensions in the VM when the VM is not running."
)
"""The answer to a run command for a stopped VM."""


@dataclass(frozen=True)
class VirtualMachine:
    resource_id: str
    host_name: str
    inputs: Properties
    """The inputs of the VM or its scale set."""
    profile: Properties
    """With osProfile and priority: the VM's own inputs, or virtualMachineProfile."""
    size: str
    subnet: Subnet
    address: str
    nsg_id: str | None
    """The NSG of its network interface; the subnet may have another one."""
    public_address: str = ""
    scale_set: str = ""
    """The scale set's name; empty for a VM outside scale sets."""
    exists: bool = True
    """False while it is being made or deleted, if it failed, and if it will never join Ray."""
    deallocated: bool = False
    """It exists and is off; its disk is kept."""


def virtual_machines(resources: Resources) -> list[VirtualMachine]:
    by_id = {subnet.resource_id: subnet for subnet in subnets(resources)}
    return [*_single(resources, by_id), *_of_scale_sets(resources, by_id)]


def power_state(vm: Resource) -> str:
    """Returns a VM's power state, which is in its instanceView only."""
    return str(vm.instance_view.get("powerState", RUNS))


def _single(resources: Resources, by_id: dict[str, Subnet]) -> Iterator[VirtualMachine]:
    for vm_id, vm in all_of(resources, "VirtualMachine").items():
        (reference,) = vm.inputs["networkProfile"]["networkInterfaces"]
        interface = resources[reference["id"]]
        (configuration,) = interface.added["ipConfigurations"]
        public = configuration.get("publicIPAddress")
        yield VirtualMachine(
            vm_id,
            vm.inputs["osProfile"]["computerName"],
            vm.inputs,
            vm.inputs,
            vm.inputs["hardwareProfile"]["vmSize"],
            by_id[configuration["subnet"]["id"]],
            configuration["privateIPAddress"],
            (interface.inputs.get("networkSecurityGroup") or {}).get("id"),
            resources[public["id"]].added["ipAddress"] if public else "",
            deallocated=power_state(vm) != RUNS,
        )


def _of_scale_sets(resources: Resources, by_id: dict[str, Subnet]) -> Iterator[VirtualMachine]:
    for set_id, scale_set in all_of(resources, "VirtualMachineScaleSet").items():
        profile = scale_set.inputs["virtualMachineProfile"]
        (interface,) = profile["networkProfile"]["networkInterfaceConfigurations"]
        (configuration,) = interface["ipConfigurations"]
        subnet = by_id[configuration["subnet"]["id"]]
        group = set_id.partition("/virtualMachineScaleSets/")[0]
        now = time.time()
        for machine in machines_of(scale_set, now):
            yield VirtualMachine(
                f"{group}/virtualMachines/{machine.name}",
                machine.name,
                scale_set.inputs,
                profile,
                machine.size or resource_skus.sizes_of(scale_set.inputs)[0],
                subnet,
                str(subnet.cidr[FIRST_HOST + machine.place]),
                (interface.get("networkSecurityGroup") or {}).get("id"),
                scale_set=scale_set.inputs["vmScaleSetName"],
                exists=machine.is_up(now),
                deallocated=machine.deallocated,
            )


def used_vcpus(resources: Resources) -> Counter[str]:
    """Returns the vCPUs of all machines by quota: Spot, or the family and the location."""
    used: Counter[str] = Counter()
    for vm in virtual_machines(resources):
        family, vcpus = resource_skus.vcpus(vm.size)
        spot = vm.profile.get("priority") == "Spot"
        for quota in ("lowPriorityCores",) if spot else (family, "cores"):
            used[quota] += vcpus
    return used


def exceeded_quota(
    before: Resources, after: Resources, limits: Mapping[str, int]
) -> ArmError | None:
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
