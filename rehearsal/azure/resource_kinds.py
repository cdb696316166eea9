"""The types of resources that a stack declares: their ids, their names and what replaces them.

All of it is as in the azure-native provider.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

Properties = dict[str, Any]

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
"""Of the stack."""


@dataclass(frozen=True)
class Resource:
    """A resource that exists."""

    kind: str
    """The last part of its type, "VirtualMachine"."""
    inputs: Properties
    added: Properties
    """What Azure has added: name, addresses, principals."""


Resources = Mapping[str, Resource]
"""By resource id, the oldest first."""


@dataclass(frozen=True)
class Kind:
    """One type of resource."""

    path: str
    """Its id. A name in braces is an input, and a change of it replaces the resource."""
    name: str
    """The input for its name. The provider chooses it where the program does not."""
    chosen: Literal["random", "same", "uuid"] = "random"
    """The program's name with eight digits, the program's name, or a UUID."""
    replaced_by: frozenset[str] = frozenset()
    """More inputs whose change replaces the resource."""

    @property
    def parameters(self) -> list[str]:
        return [name for name in re.findall(r"{(\w+)}", self.path) if name != "subscriptionId"]

    def choose_name(self, name: str, urn: str, random_seed: bytes) -> str:
        """Returns the name that the provider chooses for a resource called `name` in the program.

        Args:
            random_seed: The same name, URN and seed give the same name again.
        """
        digits = hashlib.sha256(random_seed + urn.encode()).hexdigest()
        names = {"random": name + digits[:8], "same": name, "uuid": str(uuid.UUID(digits[:32]))}
        return names[self.chosen]

    def resource_id(self, inputs: Properties, subscription: str = SUBSCRIPTION) -> str:
        """Returns the id that Azure gives; all names must be in the inputs."""
        names = {name: str(inputs[name]).strip("/") for name in self.parameters}
        return self.path.format(subscriptionId=subscription, **names)

    def replaces(self, changed: Iterable[str]) -> list[str]:
        """Returns those of the changed inputs for which Azure makes another resource."""
        return [key for key in changed if key in {*self.parameters, *self.replaced_by}]


class UnknownTypeError(Exception):
    """A type of resource that is not in KINDS."""


def short_type(type_token: str) -> str:
    """Returns "Subnet" of "azure-native:network:Subnet"."""
    return type_token.rpartition(":")[2]


def kind_of(type_token: str) -> Kind:
    """Returns the kind of "azure-native:network:Subnet".

    Raises:
        UnknownTypeError: The stand-in does not have it.
    """
    name = short_type(type_token)
    if name not in KINDS:
        raise UnknownTypeError(f"the stand-in has no resource {type_token}")
    return KINDS[name]


def all_of(resources: Resources, kind: str) -> dict[str, Resource]:
    return {key: resource for key, resource in resources.items() if resource.kind == kind}


def changes(old: Properties, new: Properties) -> dict[str, list[str]]:
    """Returns the inputs that changed, each with the innermost paths that changed in it.

    replace_on_changes names such paths: "osProfile.customData".
    """
    keys = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    return {key: list(_changed_paths(key, old.get(key), new.get(key))) for key in keys}


def _changed_paths(path: str, old: Any, new: Any) -> Iterator[str]:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield path
        return
    for inner in chain(*changes(old, new).values()):
        yield f"{path}.{inner}"


_GROUP = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}"
_VNET = "Network/virtualNetworks/{virtualNetworkName}"
_ACCOUNT = "Storage/storageAccounts/{accountName}"


def _kind(path: str, name: str, chosen: Literal["random", "same"] = "random") -> Kind:
    return Kind(f"{_GROUP}/providers/Microsoft.{path}/{{{name}}}", name, chosen)


KINDS = {
    "ResourceGroup": Kind(_GROUP, "resourceGroupName"),
    "VirtualNetwork": _kind("Network/virtualNetworks", "virtualNetworkName"),
    "Subnet": _kind(f"{_VNET}/subnets", "subnetName", "same"),
    "NetworkSecurityGroup": _kind("Network/networkSecurityGroups", "networkSecurityGroupName"),
    "NatGateway": _kind("Network/natGateways", "natGatewayName"),
    "PublicIPAddress": _kind("Network/publicIPAddresses", "publicIpAddressName"),
    "NetworkInterface": _kind("Network/networkInterfaces", "networkInterfaceName"),
    "PrivateEndpoint": _kind("Network/privateEndpoints", "privateEndpointName"),
    "StorageAccount": _kind("Storage/storageAccounts", "accountName"),
    "BlobContainer": _kind(f"{_ACCOUNT}/blobServices/default/containers", "containerName", "same"),
    "UserAssignedIdentity": _kind("ManagedIdentity/userAssignedIdentities", "resourceName"),
    "RoleAssignment": Kind(
        "/{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}",
        "roleAssignmentName",
        chosen="uuid",
        replaced_by=frozenset({"principalId", "roleDefinitionId"}),
    ),
    "VirtualMachine": _kind("Compute/virtualMachines", "vmName"),
    "VirtualMachineScaleSet": _kind("Compute/virtualMachineScaleSets", "vmScaleSetName"),
    "VirtualMachineRunCommandByVirtualMachine": _kind(
        "Compute/virtualMachines/{vmName}/runCommands", "runCommandName", "same"
    ),
}
"""By the short type."""
