"""A virtual network that exists before the stack: somebody else's, in a group of its own."""

from __future__ import annotations

from dataclasses import dataclass

from rehearsal.addresses import EXISTING_SUBNETS, EXISTING_VNET
from rehearsal.azure.resources.resource_kinds import KINDS, Properties
from rehearsal.azure.resources.resources import Azure

GROUP = {"resourceGroupName": "theirs"}
VNET = {**GROUP, "virtualNetworkName": "their-vnet"}


@dataclass(frozen=True)
class ExistingNetwork:
    """The resource ids of its subnets."""

    head_subnet: str
    worker_subnet: str


def make_existing_network(azure: Azure) -> ExistingNetwork:
    """Makes it: two subnets with a NAT gateway, without NSG and without service endpoint."""
    _make(azure, "resources", "ResourceGroup", GROUP)
    address = {"publicIpAddressName": "their-nat-ip", "publicIPAllocationMethod": "Static"}
    address_id = _make(azure, "network", "PublicIPAddress", {**GROUP, **address})
    nat = {"natGatewayName": "their-nat", "publicIpAddresses": [{"id": address_id}]}
    nat_id = _make(azure, "network", "NatGateway", {**GROUP, **nat})
    space = {"addressSpace": {"addressPrefixes": [EXISTING_VNET]}}
    _make(azure, "network", "VirtualNetwork", {**VNET, **space})
    # Azure answers a subnet's addresses as the subnet was made: one prefix, or a list.
    one, other = EXISTING_SUBNETS
    subnets: list[Properties] = [
        {"subnetName": "one", "addressPrefix": one},
        {"subnetName": "other", "addressPrefixes": [other]},
    ]
    way_out = {"natGateway": {"id": nat_id}}
    return ExistingNetwork(
        *(_make(azure, "network", "Subnet", {**VNET, **subnet, **way_out}) for subnet in subnets)
    )


def _make(azure: Azure, module: str, kind: str, inputs: Properties) -> str:
    """Makes a resource; returns its id."""
    resource_id = KINDS[kind].resource_id(inputs)
    azure.create(f"azure-native:{module}:{kind}", resource_id, inputs)
    return resource_id
