"""Finds declared properties that have no effect in a rehearsal, for the report at the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rehearsal.azure.resources.resource_kinds import KINDS, Properties, Resources

OS_DISK = ("storageProfile.osDisk.createOption", "storageProfile.osDisk.deleteOption")
SUPPORTED: dict[str, tuple[str, ...]] = {
    "ResourceGroup": (),
    "VirtualNetwork": ("addressSpace.addressPrefixes",),
    "Subnet": (
        "addressPrefix",
        "addressPrefixes",
        "natGateway",
        "networkSecurityGroup",
        "serviceEndpoints",
        "defaultOutboundAccess",
    ),
    "NetworkSecurityGroup": ("securityRules",),
    "NatGateway": (),
    "PublicIPAddress": ("publicIPAllocationMethod",),
    "NetworkInterface": ("ipConfigurations", "networkSecurityGroup"),
    "PrivateEndpoint": ("subnet", "privateLinkServiceConnections"),
    "StorageAccount": ("networkRuleSet", "publicNetworkAccess", "allowSharedKeyAccess"),
    "BlobContainer": (),
    "UserAssignedIdentity": (),
    "RoleAssignment": ("principalId", "principalType", "roleDefinitionId", "scope"),
    "VirtualMachine": (
        "identity",
        "networkProfile",
        "osProfile",
        "priority",
        "hardwareProfile.vmSize",
        "userData",
        *OS_DISK,
    ),
    "VirtualMachineScaleSet": (
        "identity",
        "sku",
        "skuProfile",
        "orchestrationMode",
        *(f"virtualMachineProfile.{name}" for name in ("osProfile", "networkProfile", "priority")),
        *(f"virtualMachineProfile.{name}" for name in OS_DISK),
    ),
    "DataCollectionEndpoint": (),
    "DataCollectionRule": ("dataCollectionEndpointId", "streamDeclarations"),
    "AutoscaleSetting": ("enabled", "profiles", "targetResourceUri"),
    "VirtualMachineRunCommandByVirtualMachine": (
        "source",
        "timeoutInSeconds",
        "treatFailureAsDeploymentFailure",
        "asyncExecution",
    ),
}
"""Properties that have an effect, by type of resource, besides names, location and tags. Each
stands for everything below it too."""
OTHER_DIFFERENCES = (
    "sizes: each machine has all of this one's CPUs and memory; the stack's RAY_OVERRIDE_RESOURCES "
    "gives each node one CPU",
    "images: Debian 13 with cloud-init stands for every image; a custom image has the Python "
    "environment of the lock",
    "names: a machine resolves an account's public name only if the account's firewall admits its "
    "subnet",
    "waits: a training that restarts waits 30 s for its workers (WORKERS_TIMEOUT_S) instead of 120",
    "prices, quota, encryption, the time that Azure takes",
)


def unsupported_properties(resources: Resources) -> list[str]:
    """Returns each type and property that has no effect here, and other differences from Azure."""
    lines = {
        line
        for resource in resources.values()
        for line in _without_effect(resource.kind, resource.inputs)
    }
    return [*sorted(lines), *OTHER_DIFFERENCES]


def _without_effect(kind: str, inputs: Properties) -> Iterator[str]:
    if kind not in SUPPORTED:
        yield f"{kind}: all of it"
        return
    supported = ("location", "tags", *KINDS[kind].parameters, *SUPPORTED[kind])
    for path, value in _leaves("", inputs):
        if not any(f"{path}.".startswith(f"{name}.") for name in supported):
            yield f"{kind}: {path} = {value}"


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{path}.{key}" if path else key, item)
    else:
        yield path, value
