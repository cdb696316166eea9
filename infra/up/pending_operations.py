"""Operations that a killed run of pulumi left pending in the stack's exported state.

https://github.com/pulumi/pulumi-azure-native/issues/1123
https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
"""

import re
from collections.abc import Mapping
from typing import Any

AZURE_NATIVE = "azure-native:"
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
    "DataCollectionEndpoint": "Insights/dataCollectionEndpoints/{dataCollectionEndpointName}",
    "DataCollectionRule": "Insights/dataCollectionRules/{dataCollectionRuleName}",
    "VirtualMachineRunCommandByVirtualMachine": f"{_VM}/runCommands/{{runCommandName}}",
}
RESOURCE_IDS = {
    "ResourceGroup": _GROUP,
    "RoleAssignment": "/{scope}/providers/Microsoft.Authorization/roleAssignments/"
    "{roleAssignmentName}",
    "Budget": "/{scope}/providers/Microsoft.Consumption/budgets/{budgetName}",
    "DiagnosticSetting": "/{resourceUri}/providers/Microsoft.Insights/diagnosticSettings/{name}",
    **{kind: f"{_GROUP}/providers/Microsoft.{path}" for kind, path in _IN_GROUP.items()},
}
"""The ids that Azure gives the stack's resources, by the last part of their type.

A name in braces is an input of the resource.
"""


def pending_operations(state: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the operations that a killed run left pending in an exported state."""
    operations: list[dict[str, Any]] = state["deployment"].get("pending_operations") or []
    return operations


def name_of(operation: dict[str, Any]) -> str:
    """Returns "VirtualMachine volley-dev-head"."""
    urn = operation["resource"]["urn"]
    return f"{_kind(urn)} {urn.rpartition('::')[2]}"


def without_pending(state: dict[str, Any], subscription: str) -> tuple[dict[str, Any], list[str]]:
    """Returns a state without pending operations, and the URNs that must be refreshed.

    A resource that was being created is in the state as if it existed; its id follows from names.
    """
    deployment = dict(state["deployment"])
    resources = list(deployment.get("resources") or [])
    urns = []
    for operation in pending_operations(state):
        resource = dict(operation["resource"])
        urn = resource["urn"]
        kind = _kind(urn)
        if operation["type"] == "creating":
            if kind not in RESOURCE_IDS or not subscription:
                continue  # Not in Azure, or the first resource group, which is empty then.
            resource["id"] = resource_id(kind, resource["inputs"], subscription)
            resource.setdefault("outputs", {})
            resources.append(resource)
        if AZURE_NATIVE in resource["type"]:
            urns.append(urn)
    deployment |= {"resources": resources, "pending_operations": []}
    return {**state, "deployment": deployment}, urns


def with_declared_inputs(state: dict[str, Any], pending: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns a state in which the resources that were being created have their declared inputs.

    For a resource without outputs, a refresh records all that Azure has added as inputs. The next
    run would remove them, and replace a VM for that.
    """
    declared = {
        operation["resource"]["urn"]: operation["resource"]["inputs"]
        for operation in pending
        if operation["type"] == "creating"
    }
    resources = [
        {**resource, "inputs": declared[resource["urn"]]}
        if resource["urn"] in declared
        else resource
        for resource in state["deployment"].get("resources") or []
    ]
    return {**state, "deployment": {**state["deployment"], "resources": resources}}


def _kind(urn: str) -> str:
    """Returns "Subnet" of a URN."""
    return urn.split("::")[-2].rpartition("$")[2].rpartition(":")[2]


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
