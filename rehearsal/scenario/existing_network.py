"""Somebody else's virtual network, which exists before the stack in its own resource group."""

from __future__ import annotations

from dataclasses import dataclass

from rehearsal.addresses import EXISTING_SUBNETS, EXISTING_VNET
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import KINDS, Properties

GROUP = {"resourceGroupName": "theirs"}
VNET = {**GROUP, "virtualNetworkName": "their-vnet"}


@dataclass(frozen=True)
class ExistingNetwork:
    """The resource ids of its subnets."""

    head_subnet: str
    worker_subnet: str


def make_existing_network(azure: Azure) -> ExistingNetwork:
    """Makes the network: two subnets with a NAT gateway, no NSG and no service endpoint."""
    _make(azure, "resources", "ResourceGroup", GROUP)
    address = {"publicIpAddressName": "their-nat-ip", "publicIPAllocationMethod": "Static"}
    address_id = _make(azure, "network", "PublicIPAddress", {**GROUP, **address})
    nat = {"natGatewayName": "their-nat", "publicIpAddresses": [{"id": address_id}]}
    nat_id = _make(azure, "network", "NatGateway", {**GROUP, **nat})
    space = {"addressSpace": {"addressPrefixes": [EXISTING_VNET]}}
    _make(azure, "network", "VirtualNetwork", {**VNET, **space})
    # Azure returns a subnet's addresses as they were sent: one prefix, or a list.
    head_cidr, worker_cidr = EXISTING_SUBNETS
    shared = {**VNET, "natGateway": {"id": nat_id}}
    head = {**shared, "subnetName": "one", "addressPrefix": head_cidr}
    worker = {**shared, "subnetName": "other", "addressPrefixes": [worker_cidr]}
    return ExistingNetwork(
        head_subnet=_make(azure, "network", "Subnet", head),
        worker_subnet=_make(azure, "network", "Subnet", worker),
    )


def _make(azure: Azure, module: str, kind: str, inputs: Properties) -> str:
    """Makes a resource; returns its id."""
    resource_id = KINDS[kind].resource_id(inputs)
    azure.create(f"azure-native:{module}:{kind}", resource_id, inputs)
    return resource_id
