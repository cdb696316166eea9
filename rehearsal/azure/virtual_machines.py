"""The declared virtual machines, those of scale sets too, each with its network interface."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rehearsal.azure.errors import ArmError
from rehearsal.azure.resource_kinds import Properties, Resource, Resources, all_of
from rehearsal.azure.virtual_network import FIRST_HOST, Subnet, subnets

RUNS = "PowerState/running"
NOT_RUNNING = ArmError(
    "OperationNotAllowed", "Cannot modify extensions in the VM when the VM is not running."
)
"""The answer to a run command for a VM that is stopped."""


@dataclass(frozen=True)
class VirtualMachine:
    """A virtual machine."""

    resource_id: str
    host_name: str
    inputs: Properties
    """Of the VM or of its scale set."""
    profile: Properties
    """With osProfile and priority: the VM's own inputs, or virtualMachineProfile."""
    size: str
    subnet: Subnet
    address: str
    nsg_id: str | None
    """Of its network interface; the subnet may have another NSG."""
    public_address: str = ""
    scale_set: str = ""
    """Its name; empty for a machine of its own."""


def virtual_machines(resources: Resources) -> list[VirtualMachine]:
    by_id = {subnet.resource_id: subnet for subnet in subnets(resources)}
    return [*_single(resources, by_id), *_of_scale_sets(resources, by_id)]


def power_state(vm: Resource) -> str:
    """Returns what instanceView says of a VM; a stopped one is declared like one that runs."""
    return str(vm.instance_view.get("powerState", RUNS))


def instances_of(scale_set: Properties, spot_machines: int | None) -> Properties:
    """Returns a scale set's instance view: how many machines it has got.

    Args:
        spot_machines: How many Spot machines there are; None is enough.
    """
    wanted = int(scale_set["sku"]["capacity"])
    spot = scale_set["virtualMachineProfile"].get("priority") == "Spot"
    scarce = spot and spot_machines is not None
    return {"instances": min(wanted, spot_machines or 0) if scarce else wanted}


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
        )


def _of_scale_sets(resources: Resources, by_id: dict[str, Subnet]) -> Iterator[VirtualMachine]:
    for set_id, scale_set in all_of(resources, "VirtualMachineScaleSet").items():
        profile = scale_set.inputs["virtualMachineProfile"]
        (interface,) = profile["networkProfile"]["networkInterfaceConfigurations"]
        (configuration,) = interface["ipConfigurations"]
        subnet = by_id[configuration["subnet"]["id"]]
        for place in range(scale_set.instance_view["instances"]):
            host_name = f"{profile['osProfile']['computerNamePrefix']}{place}"
            yield VirtualMachine(
                f"{set_id}/virtualMachines/{host_name}",
                host_name,
                scale_set.inputs,
                profile,
                scale_set.inputs["sku"]["name"],
                subnet,
                str(subnet.cidr[FIRST_HOST + place]),
                (interface.get("networkSecurityGroup") or {}).get("id"),
                scale_set=scale_set.inputs["vmScaleSetName"],
            )
