"""Virtual networks: their address spaces, subnets and private endpoints."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import chain

from rehearsal.azure.resources.resource_kinds import Resource, Resources, all_of

FIRST_HOST = 4
"""Azure reserves the addresses of a subnet below this; the first is the gateway."""
BLOB = "blob"
"""The only service of an account that endpoints lead to here."""


@dataclass(frozen=True)
class Subnet:
    resource_id: str
    cidr: IPv4Network
    nsg_id: str | None
    has_nat: bool
    reaches_storage: bool
    """Whether it has the service endpoint Microsoft.Storage."""

    @property
    def gateway(self) -> str:
        return str(self.cidr[1])

    @property
    def vnet_id(self) -> str:
        return self.resource_id.partition("/subnets/")[0]


def subnets(resources: Resources) -> list[Subnet]:
    return [
        Subnet(
            subnet_id,
            subnet_cidr(subnet),
            (subnet.inputs.get("networkSecurityGroup") or {}).get("id"),
            "natGateway" in subnet.inputs,
            "Microsoft.Storage"
            in [point["service"] for point in subnet.inputs.get("serviceEndpoints") or []],
        )
        for subnet_id, subnet in all_of(resources, "Subnet").items()
    ]


def subnet_cidr(subnet: Resource) -> IPv4Network:
    """Returns a subnet's addresses, which are declared as one prefix or as a list."""
    prefix = subnet.inputs.get("addressPrefix") or subnet.inputs["addressPrefixes"][0]
    return IPv4Network(prefix)


def address_space(resources: Resources, vnet_ids: Collection[str]) -> list[str]:
    networks = all_of(resources, "VirtualNetwork").items()
    prefixes = [
        network.inputs["addressSpace"]["addressPrefixes"]
        for vnet_id, network in networks
        if vnet_id in vnet_ids
    ]
    return list(chain(*prefixes))


@dataclass(frozen=True)
class PrivateEndpoint:
    """An address in a subnet at which a storage account answers.

    Neither the account's firewall nor an NSG of the subnet applies to it:
    https://learn.microsoft.com/azure/storage/common/storage-private-endpoints
    """

    address: str
    subnet: Subnet
    clients: tuple[str, ...]
    """CIDRs of its virtual network; it cannot be reached from elsewhere."""


def private_endpoints(resources: Resources) -> list[PrivateEndpoint]:
    """Returns the endpoints whose account exists."""
    by_id = {subnet.resource_id: subnet for subnet in subnets(resources)}
    endpoints = []
    accounts = all_of(resources, "StorageAccount")
    for endpoint in all_of(resources, "PrivateEndpoint").values():
        (connection,) = endpoint.inputs["privateLinkServiceConnections"]
        if connection["privateLinkServiceId"] in accounts and BLOB in connection["groupIds"]:
            subnet = by_id[endpoint.inputs["subnet"]["id"]]
            (config,) = endpoint.added["customDnsConfigs"]
            (address,) = config["ipAddresses"]
            clients = tuple(address_space(resources, [subnet.vnet_id]))
            endpoints.append(PrivateEndpoint(address, subnet, clients))
    return endpoints
