"""What is declared and not honoured here: told at the end, never dropped in silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rehearsal.azure.resource_kinds import Properties, Resources

EVERYWHERE = ("location", "tags", "resourceGroupName")
"""Names and labels; the metadata service tells a machine its own."""
HONOURED: dict[str, tuple[str, ...]] = {
    "ResourceGroup": (),
    "VirtualNetwork": ("virtualNetworkName", "addressSpace.addressPrefixes"),
    "Subnet": (
        "subnetName",
        "virtualNetworkName",
        "addressPrefix",
        "natGateway",
        "networkSecurityGroup",
        "serviceEndpoints",
        "defaultOutboundAccess",
    ),
    "NetworkSecurityGroup": ("networkSecurityGroupName", "securityRules"),
    "NatGateway": ("natGatewayName",),
    "PublicIPAddress": ("publicIpAddressName", "publicIPAllocationMethod"),
    "NetworkInterface": ("networkInterfaceName", "ipConfigurations", "networkSecurityGroup"),
    "StorageAccount": ("accountName", "networkRuleSet", "allowSharedKeyAccess"),
    "BlobContainer": ("accountName", "containerName"),
    "UserAssignedIdentity": ("resourceName",),
    "VirtualMachine": (
        "vmName",
        "identity",
        "networkProfile",
        "osProfile",
        "storageProfile.osDisk.createOption",
        "storageProfile.osDisk.deleteOption",
        "priority",
        "hardwareProfile.vmSize",
    ),
    "VirtualMachineScaleSet": (
        "vmScaleSetName",
        "identity",
        "sku",
        "orchestrationMode",
        "virtualMachineProfile.osProfile",
        "virtualMachineProfile.networkProfile",
        "virtualMachineProfile.storageProfile.osDisk.createOption",
        "virtualMachineProfile.storageProfile.osDisk.deleteOption",
        "virtualMachineProfile.priority",
    ),
    "VirtualMachineRunCommandByVirtualMachine": (
        "vmName",
        "runCommandName",
        "source",
        "timeoutInSeconds",
        "treatFailureAsDeploymentFailure",
        "asyncExecution",
    ),
}
"""Properties by type of resource, with all that is below them."""
BESIDES = (
    "sizes: each machine has all of this one's CPUs and memory; the stack's RAY_OVERRIDE_RESOURCES "
    "gives each node one CPU",
    "images: Debian 12 with cloud-init stands for the declared one; the Python environment of the "
    "lock is there already",
    "prices, quota, encryption, the time that Azure takes",
)


def not_rehearsed(resources: Resources) -> list[str]:
    """Returns each type and property that nothing here stands for, and what else differs."""
    found = {line for one in resources.values() for line in _of(one.kind, one.inputs)}
    return [*sorted(found), *BESIDES]


def _of(kind: str, inputs: Properties) -> Iterator[str]:
    if kind not in HONOURED:
        yield f"{kind}: all of it"
        return
    honoured = (*EVERYWHERE, *HONOURED[kind])
    for path, value in _leaves("", inputs):
        if not any(f"{path}.".startswith(f"{known}.") for known in honoured):
            yield f"{kind}: {path} = {value}"


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(f"{path}.{key}" if path else key, item)
    else:
        yield path, value
