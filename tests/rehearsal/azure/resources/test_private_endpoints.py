"""The private endpoints that lead to Blob, and the networks that can use them."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal.azure.resources.resource_kinds import Resource
from rehearsal.azure.resources.virtual_network import PrivateEndpoint, private_endpoints

ACCOUNT, VNET, OTHER_VNET = "/g/storageAccounts/a", "/g/virtualNetworks/v", "/g/virtualNetworks/w"
SUBNET = f"{VNET}/subnets/one"


def found(group: str = "blob", account: str = ACCOUNT) -> list[PrivateEndpoint]:
    """Returns the endpoints of two virtual networks, one of which has one for the account."""
    connection = {"privateLinkServiceId": account, "groupIds": [group]}
    endpoint = {"subnet": {"id": SUBNET}, "privateLinkServiceConnections": [connection]}
    return private_endpoints(
        {
            ACCOUNT: resource("StorageAccount", accountName="a"),
            VNET: resource("VirtualNetwork", addressSpace={"addressPrefixes": ["10.1.0.0/16"]}),
            OTHER_VNET: resource(
                "VirtualNetwork", addressSpace={"addressPrefixes": ["10.2.0.0/16"]}
            ),
            SUBNET: resource("Subnet", addressPrefix="10.1.1.0/24"),
            "/g/privateEndpoints/e": Resource(
                "PrivateEndpoint", endpoint, {"customDnsConfigs": [{"ipAddresses": ["10.1.1.4"]}]}
            ),
        }
    )


def resource(kind: str, **inputs: Any) -> Resource:
    return Resource(kind, inputs, {})


def test_an_endpoint_is_reached_from_its_own_virtual_network() -> None:
    (endpoint,) = found()
    assert (endpoint.address, endpoint.clients) == ("10.1.1.4", ("10.1.0.0/16",))
    assert endpoint.subnet.resource_id == SUBNET


@pytest.mark.parametrize("wrong", [{"group": "file"}, {"account": "/g/storageAccounts/gone"}])
def test_an_endpoint_for_anything_else_leads_nowhere(wrong: dict[str, str]) -> None:
    assert found(**wrong) == []
