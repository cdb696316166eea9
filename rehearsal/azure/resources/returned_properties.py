"""Properties that Azure returns: those that it adds, and the form in which it answers a GET.

It adds names, addresses and principals, some of them some time after it made the resource. In an
answer, ids have another case than they were sent with, and lists have another order.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from ipaddress import IPv4Network
from typing import Any

from rehearsal.addresses import LOGS_HOST, PUBLIC_ADDRESSES
from rehearsal.azure.resources.property_changes import ID_PREFIX
from rehearsal.azure.resources.resource_kinds import Properties, Resource, Resources, all_of
from rehearsal.azure.resources.virtual_machines import virtual_machines
from rehearsal.azure.resources.virtual_network import FIRST_HOST, subnet_cidr

LATEST = "22.04.2026021601"
"""The version that an image's `latest` resolves to."""


def added_properties(
    kind: str, resource_id: str, inputs: Properties, resources: Resources
) -> Properties:
    """Returns the properties that Azure adds; an existing resource keeps its addresses."""
    added: Properties = {"name": resource_id.rpartition("/")[2]}
    before = resources[resource_id].added if resource_id in resources else None
    if "identity" in inputs:  # Declared as a list, returned as keys.
        named: Properties = {key: {} for key in inputs["identity"]["userAssignedIdentities"]}
        added["identity"] = {**inputs["identity"], "userAssignedIdentities": named}
    match kind:
        case "PublicIPAddress":
            added["ipAddress"] = before["ipAddress"] if before else _free_public_address(resources)
        case "NetworkInterface":
            (configuration,) = inputs["ipConfigurations"]
            if before:
                address = before["ipConfigurations"][0]["privateIPAddress"]
            else:
                address = _free_address(resources, configuration["subnet"]["id"])
            added["ipConfigurations"] = [{**configuration, "privateIPAddress": address}]
        case "PrivateEndpoint":
            configs = [{"ipAddresses": [_free_address(resources, inputs["subnet"]["id"])]}]
            added["customDnsConfigs"] = before["customDnsConfigs"] if before else configs
        case "VirtualMachine":
            added["vmId"] = before["vmId"] if before else str(uuid.uuid4())
            if "storageProfile" in inputs:
                added["storageProfile"] = _with_exact_version(inputs["storageProfile"])
        case "UserAssignedIdentity":
            for what in ("principal", "client"):
                added[f"{what}Id"] = str(uuid.uuid5(uuid.NAMESPACE_URL, what + resource_id))
        case "DataCollectionEndpoint" | "DataCollectionRule":
            added["immutableId"] = f"dcr-{uuid.uuid5(uuid.NAMESPACE_URL, resource_id).hex}"
            added["logsIngestion"] = {"endpoint": f"https://{LOGS_HOST}"}
        case "RoleAssignment":
            now = datetime.now(UTC).isoformat()
            added["createdOn"] = before["createdOn"] if before else now
    return added


def _with_exact_version(profile: Properties) -> Properties:
    """Returns a storage profile with the disk and image version that Azure has chosen."""
    reference = profile["imageReference"]
    version = reference.get("version", "")
    exact = {"exactVersion": LATEST if version == "latest" else version}
    disk = {**profile["osDisk"], "name": "head_OsDisk_1"}
    return {**profile, "imageReference": {**reference, **exact}, "osDisk": disk}


def _free_address(resources: Resources, subnet_id: str) -> str:
    """Returns the lowest free address of a subnet."""
    cidr = subnet_cidr(resources[subnet_id])
    taken = {vm.address for vm in virtual_machines(resources)}
    for interface in all_of(resources, "NetworkInterface").values():
        taken |= {
            configuration["privateIPAddress"]
            for configuration in interface.added["ipConfigurations"]
        }
    for endpoint in all_of(resources, "PrivateEndpoint").values():
        taken |= set(endpoint.added["customDnsConfigs"][0]["ipAddresses"])
    hosts = (str(cidr[place]) for place in range(FIRST_HOST, cidr.num_addresses - 1))
    return next(address for address in hosts if address not in taken)


def _free_public_address(resources: Resources) -> str:
    taken = {
        address.added["ipAddress"] for address in all_of(resources, "PublicIPAddress").values()
    }
    hosts = map(str, IPv4Network(PUBLIC_ADDRESSES).hosts())
    return next(address for address in hosts if address not in taken)


def answered(resource_id: str, resource: Resource, others: Resources, settled: bool) -> Properties:
    """Returns a resource as Azure reads it back.

    What surrounds a resource is not settled yet when azure-native reads it at the end of a PUT.
    """
    answer = {**resource.inputs, **resource.added}
    if resource.kind == "StorageAccount" and "networkRuleSet" in answer:
        state = "Succeeded" if settled else "Provisioning"
        rules = answer["networkRuleSet"].get("virtualNetworkRules") or []
        stated = [{**rule, "state": state} for rule in rules]
        answer["networkRuleSet"] = {**answer["networkRuleSet"], "virtualNetworkRules": stated}
    if resource.kind == "PublicIPAddress" and settled:
        for gateway_id, gateway in all_of(others, "NatGateway").items():
            addresses = gateway.inputs.get("publicIpAddresses") or []
            if resource_id in [address["id"] for address in addresses]:
                answer["natGateway"] = {"id": gateway_id}
    return {key: _normalised(value, settled) for key, value in answer.items()}


def _normalised(value: Any, settled: bool) -> Any:
    """Returns a value as Azure writes it: settled resource groups are in capitals."""
    if isinstance(value, dict):
        return {key: _normalised(item, settled) for key, item in value.items()}
    if isinstance(value, list):
        items = [_normalised(item, settled) for item in value]
        texts = all(isinstance(item, str) for item in items)
        return sorted(items, reverse=True) if texts else items
    if isinstance(value, str) and settled and ID_PREFIX.match(value):
        *start, group, providers, rest = value.split("/", 6)
        return "/".join([*start, group.upper(), providers, rest])
    return value
