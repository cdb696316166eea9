"""Operations that Azure refuses for a while after a deletion or a failure, or during use.

The times are Azure's, divided by TIME_FACTOR.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from rehearsal.azure.azure_errors import ArmError
from rehearsal.azure.resources.property_changes import changes
from rehearsal.azure.resources.resource_kinds import Properties, Resource, Resources

TIME_FACTOR = 30
INTERFACE_LINGERS_S = 60 / TIME_FACTOR
"""DELETE of a scale set returns while its machines' network interfaces still exist. Azure
documents no time: https://github.com/gardener/machine-controller-manager-provider-azure"""
INTERFACE_RESERVED_S = 180 / TIME_FACTOR
"""For the VM whose creation failed: https://github.com/taskcluster/taskcluster/issues/7196"""
CONTAINER_NAME_S = 30 / TIME_FACTOR
"""https://learn.microsoft.com/rest/api/storageservices/delete-container"""
ACCOUNT_NAME_S = 120 / TIME_FACTOR
"""A storage account's name becomes free minutes after its deletion; Azure documents no time."""
IN_SUBNETS = ("NetworkInterface", "PrivateEndpoint", "VirtualMachineScaleSet")
IN_USE = {
    "Subnet": ("InUseSubnetCannotBeDeleted", IN_SUBNETS),
    "NetworkSecurityGroup": (
        "InUseNetworkSecurityGroupCannotBeDeleted",
        ("Subnet", "NetworkInterface", "VirtualMachineScaleSet"),
    ),
    "NatGateway": ("InUseNatGatewayCannotBeDeleted", ("Subnet",)),
    "PublicIPAddress": ("PublicIPAddressCannotBeDeleted", ("NetworkInterface", "NatGateway")),
    "NetworkInterface": ("NicInUse", ("VirtualMachine",)),
    "VirtualNetwork": ("InUseSubnetCannotBeDeleted", IN_SUBNETS),
}
"""By type: the error of a deletion while resources of the listed types refer to it."""

UNCHANGEABLE = {
    "VirtualMachine": (
        "osProfile.adminUsername",
        "osProfile.computerName",
        "osProfile.customData",
        "osProfile.linuxConfiguration.ssh",
        "storageProfile.imageReference",
    )
}
"""By type: properties that Azure sets once.
https://learn.microsoft.com/rest/api/compute/virtual-machines/create-or-update"""


@dataclass(frozen=True)
class Hold:
    """An operation that is refused until a time."""

    operation: Literal["create", "delete", "attach"]
    resource_id: str
    until: float
    """Seconds since the epoch."""
    error: ArmError
    by: str = ""
    """A resource that is exempt."""

    def refuses(self, operation: str, resource_id: str, by: str, now: float) -> bool:
        asked = (operation, resource_id.lower()) == (self.operation, self.resource_id.lower())
        return asked and now < self.until and not (self.by and self.by == by)


def after_deletion(deleted: Resources, now: float) -> Iterator[Hold]:
    """Yields what Azure refuses after the deletion of these resources."""
    for resource_id, resource in deleted.items():
        name = resource_id.rpartition("/")[2]
        if resource.kind == "VirtualMachineScaleSet" and resource.inputs["sku"]["capacity"] > 0:
            error = ArmError(
                "InUseSubnetCannotBeDeleted",
                f"Subnet is in use by a network interface of {name} and cannot be deleted.",
                400,
            )
            for subnet in subnets_of(resource.inputs):
                yield Hold("delete", subnet, now + INTERFACE_LINGERS_S, error)
                vnet = subnet.partition("/subnets/")[0]
                yield Hold("delete", vnet, now + INTERFACE_LINGERS_S, error)
        elif resource.kind == "BlobContainer":
            message = "The specified container is being deleted. Try operation later."
            error = ArmError("ContainerBeingDeleted", message)
            yield Hold("create", resource_id, now + CONTAINER_NAME_S, error)
        elif resource.kind == "StorageAccount":
            message = f"The storage account named {name} is already taken."
            error = ArmError("StorageAccountAlreadyTaken", message)
            yield Hold("create", resource_id, now + ACCOUNT_NAME_S, error)


def after_failed_creation(vm_id: str, inputs: Properties, now: float) -> Iterator[Hold]:
    """Yields what Azure refuses after a VM's creation failed: its interface stays reserved."""
    for interface in interfaces_of(inputs):
        message = (
            f"Nic(s) in request is reserved for another Virtual Machine for 180 seconds. "
            f"Please provide another nic(s) or retry after 180 seconds. VM: {vm_id}"
        )
        error = ArmError("NicReservedForAnotherVm", message, 400)
        yield Hold("attach", interface, now + INTERFACE_RESERVED_S, error, by=vm_id)


def change_of(kind: str, before: Properties, after: Properties) -> ArmError | None:
    """Returns why a resource cannot be changed: Azure has set a property once and for all."""
    for path in chain.from_iterable(changes(before, after).values()):
        if path.startswith(UNCHANGEABLE.get(kind, ())):
            message = f"Changing property '{path}' is not allowed."
            return ArmError("PropertyChangeNotAllowed", message, 409)
    return None


def users_of(resource_id: str, resources: Resources) -> ArmError | None:
    """Returns why a resource cannot be deleted: another one uses it."""
    code, kinds = IN_USE.get(resources[resource_id].kind, ("", ()))
    for other_id, other in resources.items():
        if other.kind in kinds and _names(other, resource_id):
            return ArmError(code, f"{resource_id} is in use by {other_id}.", 400)
    return None


def interfaces_of(vm: Properties) -> list[str]:
    return [
        interface["id"] for interface in vm.get("networkProfile", {}).get("networkInterfaces", [])
    ]


def subnets_of(scale_set: Properties) -> Iterable[str]:
    """Yields the ids of the subnets that a scale set's machines join."""
    profile = scale_set["virtualMachineProfile"]["networkProfile"]
    for interface in profile["networkInterfaceConfigurations"]:
        for configuration in interface["ipConfigurations"]:
            yield configuration["subnet"]["id"]


def _names(resource: Resource, resource_id: str) -> bool:
    return re.search(rf"'{re.escape(resource_id)}['/]", repr(resource.inputs)) is not None
