"""The ids that Azure gives the stack's resources, by type: each follows from names.

https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_GROUP = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}"
_VNET = "Network/virtualNetworks/{virtualNetworkName}"
_ACCOUNT = "Storage/storageAccounts/{accountName}"
_VM = "Compute/virtualMachines/{vmName}"
_IN_GROUP = {
    "VirtualNetwork": _VNET,
    "Subnet": f"{_VNET}/subnets/{{subnetName}}",
    "NetworkSecurityGroup": "Network/networkSecurityGroups/{networkSecurityGroupName}",
    "NatGateway": "Network/natGateways/{natGatewayName}",
    "PublicIPAddress": "Network/publicIPAddresses/{publicIpAddressName}",
    "NetworkInterface": "Network/networkInterfaces/{networkInterfaceName}",
    "PrivateEndpoint": "Network/privateEndpoints/{privateEndpointName}",
    "StorageAccount": _ACCOUNT,
    "BlobServiceProperties": f"{_ACCOUNT}/blobServices/{{blobServicesName}}",
    "ManagementPolicy": f"{_ACCOUNT}/managementPolicies/{{managementPolicyName}}",
    "BlobContainer": f"{_ACCOUNT}/blobServices/default/containers/{{containerName}}",
    "UserAssignedIdentity": "ManagedIdentity/userAssignedIdentities/{resourceName}",
    "VirtualMachine": _VM,
    "VirtualMachineScaleSet": "Compute/virtualMachineScaleSets/{vmScaleSetName}",
    "AutoscaleSetting": "Insights/autoscaleSettings/{autoscaleSettingName}",
    "VirtualMachineRunCommandByVirtualMachine": f"{_VM}/runCommands/{{runCommandName}}",
}
RESOURCE_IDS = {
    "ResourceGroup": _GROUP,
    "RoleAssignment": "/{scope}/providers/Microsoft.Authorization/roleAssignments/"
    "{roleAssignmentName}",
    **{kind: f"{_GROUP}/providers/Microsoft.{path}" for kind, path in _IN_GROUP.items()},
}
"""By the last part of a resource's type. A name in braces is an input of the resource."""


def resource_id(kind: str, inputs: Mapping[str, Any], subscription: str) -> str:
    """Returns the id of a resource; all names must be in the inputs.

    Args:
        kind: The last part of its type, "VirtualMachine".
    """
    path = RESOURCE_IDS[kind]
    names = {name: str(inputs[name]).strip("/") for name in names_of(kind)}
    return path.format(subscriptionId=subscription, **names)


def names_of(kind: str) -> list[str]:
    """Returns the inputs that are in an id, the resource's own name last."""
    names = re.findall(r"{(\w+)}", RESOURCE_IDS[kind])
    return [name for name in names if name != "subscriptionId"]
