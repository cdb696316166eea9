"""Private endpoints: addresses in a subnet at which a storage account answers.

The account's firewall does not apply to them, and an NSG of their subnet does not either:
https://learn.microsoft.com/azure/storage/common/storage-private-endpoints
"""

from __future__ import annotations

from dataclasses import dataclass

from rehearsal.azure.resources.resource_kinds import Properties, Resources, all_of
from rehearsal.azure.resources.virtual_network import Subnet, address_space, subnets

BLOB = "blob"
"""The only service of an account that endpoints lead to here."""


@dataclass(frozen=True)
class PrivateEndpoint:
    """A private endpoint that leads to Blob."""

    address: str
    subnet: Subnet
    clients: tuple[str, ...]
    """CIDRs of its virtual network; it cannot be reached from elsewhere."""


def private_endpoints(resources: Resources) -> list[PrivateEndpoint]:
    """Returns the endpoints whose account exists."""
    by_id = {subnet.resource_id: subnet for subnet in subnets(resources)}
    endpoints = []
    for endpoint in all_of(resources, "PrivateEndpoint").values():
        if _leads_to_blob(endpoint.inputs, resources):
            subnet = by_id[endpoint.inputs["subnet"]["id"]]
            (config,) = endpoint.added["customDnsConfigs"]
            (address,) = config["ipAddresses"]
            clients = tuple(address_space(resources, [subnet.vnet_id]))
            endpoints.append(PrivateEndpoint(address, subnet, clients))
    return endpoints


def _leads_to_blob(endpoint: Properties, resources: Resources) -> bool:
    accounts = all_of(resources, "StorageAccount")
    (connection,) = endpoint["privateLinkServiceConnections"]
    return connection["privateLinkServiceId"] in accounts and BLOB in connection["groupIds"]
