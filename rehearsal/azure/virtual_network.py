"""The declared virtual network: its address space and its subnets."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network

from rehearsal.azure.resource_kinds import Resource, Resources, all_of

FIRST_HOST = 4
"""Azure keeps the first addresses of a subnet for itself; the first of them is the gateway."""


@dataclass(frozen=True)
class Subnet:
    """A subnet."""

    resource_id: str
    number: int
    """Its place among all subnets."""
    cidr: IPv4Network
    nsg_id: str | None
    has_nat: bool
    reaches_storage: bool
    """Whether it has Microsoft.Storage's service endpoint."""

    @property
    def gateway(self) -> str:
        return str(self.cidr[1])


def subnets(resources: Resources) -> list[Subnet]:
    return [
        Subnet(
            subnet_id,
            number,
            subnet_cidr(subnet),
            (subnet.inputs.get("networkSecurityGroup") or {}).get("id"),
            "natGateway" in subnet.inputs,
            "Microsoft.Storage"
            in [point["service"] for point in subnet.inputs.get("serviceEndpoints") or []],
        )
        for number, (subnet_id, subnet) in enumerate(all_of(resources, "Subnet").items())
    ]


def subnet_cidr(subnet: Resource) -> IPv4Network:
    """Returns its addresses: one prefix or a list, as the subnet was made."""
    prefix = subnet.inputs.get("addressPrefix") or subnet.inputs["addressPrefixes"][0]
    return IPv4Network(prefix)


def address_space(resources: Resources) -> list[str]:
    """Returns the CIDRs of the virtual network."""
    networks = all_of(resources, "VirtualNetwork").values()
    return [cidr for one in networks for cidr in one.inputs["addressSpace"]["addressPrefixes"]]
