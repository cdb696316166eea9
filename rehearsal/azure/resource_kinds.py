"""The types of resources that are declared: their ids, their names and what replaces them.

All of it is as in the azure-native provider; all values are plain Python's.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

Properties = dict[str, Any]

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"


@dataclass(frozen=True)
class Kind:
    """One type of resource."""

    path: str
    """Its id; a name in braces is an input, and a change of it replaces the resource."""
    name: str
    """The input that is chosen where the program does not."""
    chosen: Literal["random", "same", "uuid"] = "random"
    """How: name and eight digits, as in the program, or a UUID."""
    replaced_by: frozenset[str] = frozenset()
    """More inputs whose change replaces the resource."""

    @property
    def parameters(self) -> list[str]:
        return [name for name in re.findall(r"{(\w+)}", self.path) if name != "subscriptionId"]


class UnknownTypeError(Exception):
    """A type of resource that is not in KINDS."""


def short_type(type_token: str) -> str:
    """Returns "Subnet" of "azure-native:network:Subnet"."""
    return type_token.rpartition(":")[2]


def kind_of(type_token: str) -> Kind:
    """Returns the kind of "azure-native:network:Subnet".

    Raises:
        UnknownTypeError: It has none.
    """
    name = short_type(type_token)
    if name not in KINDS:
        raise UnknownTypeError(f"the stand-in has no resource {type_token}")
    return KINDS[name]


def chosen_name(kind: Kind, name: str, urn: str, random_seed: bytes) -> str:
    """Returns what is chosen for `kind.name` where the program names the resource `name`."""
    digits = hashlib.sha256(random_seed + urn.encode()).hexdigest()
    return {"random": name + digits[:8], "same": name, "uuid": str(uuid.UUID(digits[:32]))}[
        kind.chosen
    ]


def resource_id(kind: Kind, inputs: Properties) -> str:
    """Returns the id that Azure gives; all names are in the inputs."""
    names = {name: str(inputs[name]).strip("/") for name in kind.parameters}
    return kind.path.format(subscriptionId=SUBSCRIPTION, **names)


def changed_keys(old: Properties, new: Properties) -> list[str]:
    return [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]


def changed_paths(path: str, old: Any, new: Any) -> Iterator[str]:
    """Yields "osProfile.customData", as the real provider: replace_on_changes names such paths."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield path
        return
    for key in changed_keys(old, new):
        yield from changed_paths(f"{path}.{key}", old.get(key), new.get(key))


def replaces(kind: Kind, changed: Iterable[str]) -> list[str]:
    """Returns those of the changed inputs for which Azure makes another resource."""
    return [key for key in changed if key in {*kind.parameters, *kind.replaced_by}]


def common_outputs(resource_id: str, inputs: Properties) -> Properties:
    """Returns what every Azure makes of the inputs, whatever is behind it."""
    outputs: Properties = {"name": resource_id.rpartition("/")[2]}
    if "identity" in inputs:  # Named in a list, answered as keys.
        named = inputs["identity"]["userAssignedIdentities"]
        known: Properties = {key: {} for key in named}
        outputs["identity"] = {**inputs["identity"], "userAssignedIdentities": known}
    return outputs


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
