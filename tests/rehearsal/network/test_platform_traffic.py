"""Access of the machines to Azure's own addresses on the host and to private endpoints."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from rehearsal.addresses import BLOB_ADDRESS, MLFLOW_ADDRESS, STRANGER_ADDRESS
from rehearsal.azure.network.nsg_evaluation import Nsg
from rehearsal.host_shell import run
from rehearsal.network.nftables import (
    RECEIVED,
    address_rules,
    counted,
    nsg_rules,
    platform_rules,
    traffic_rules,
)
from tests.rehearsal.network.cloud import Cloud
from tests.rehearsal.network.cloud import cloud as make_cloud
from tests.rehearsal.network_namespaces import ip, needs
from tests.rehearsal.random_rules import declared_rule

pytestmark = needs("nft", bridges=True)

VNET = "10.43.0.0/16"
GATEWAY, ENDPOINT, HEAD, WORKER = "10.43.0.1", "10.43.0.4", "10.43.0.5", "10.43.1.4"
INTERNET_GATEWAY = "198.51.100.129"
SUBNETS = {
    GATEWAY: [HEAD],
    "10.43.1.1": [WORKER],
    INTERNET_GATEWAY: [STRANGER_ADDRESS, MLFLOW_ADDRESS],
}
MACHINES = [HEAD, WORKER]


@pytest.fixture(scope="module")
def hosts() -> Iterator[Cloud]:
    """Hosts with a private endpoint in the head's subnet, as the rehearsal makes it."""
    with make_cloud(SUBNETS, [BLOB_ADDRESS], GATEWAY) as made:
        with made.host.entered():
            ip(f"address add {ENDPOINT}/32 dev {made.bridges[0]}")
        yield made


@pytest.fixture
def cloud(hosts: Cloud) -> Cloud:
    """A network that only the account's firewall restricts; it lets nobody in."""
    hosts.apply(nsg_rules([], "nsg"))
    hosts.apply(platform_rules(hosts.bridges, [], {ENDPOINT: [VNET]}, "platform"))
    return hosts


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_reaches_blob_by_the_endpoint_alone(cloud: Cloud, machine: str) -> None:
    assert cloud.is_open(machine, ENDPOINT, 443)
    assert not cloud.is_open(machine, BLOB_ADDRESS, 443)


@pytest.mark.parametrize("machine", MACHINES)
def test_without_the_endpoint_a_machine_reaches_no_blob(cloud: Cloud, machine: str) -> None:
    cloud.apply(platform_rules(cloud.bridges, [], {}, "platform"))
    assert not cloud.is_open(machine, ENDPOINT, 443)
    assert not cloud.is_open(machine, BLOB_ADDRESS, 443)


def test_the_firewall_lets_a_subnet_in_by_the_public_address(cloud: Cloud) -> None:
    cloud.apply(platform_rules(cloud.bridges, ["10.43.0.0/24"], {}, "platform"))
    assert cloud.is_open(HEAD, BLOB_ADDRESS, 443)
    assert not cloud.is_open(WORKER, BLOB_ADDRESS, 443)


def test_an_endpoint_answers_at_blobs_port_alone(cloud: Cloud) -> None:
    assert not cloud.is_open(HEAD, ENDPOINT, 80)


def test_nobody_outside_of_the_virtual_network_reaches_an_endpoint(cloud: Cloud) -> None:
    assert not cloud.is_open(STRANGER_ADDRESS, ENDPOINT, 443)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_reaches_no_endpoint_that_its_outbound_rules_deny(
    cloud: Cloud, machine: str
) -> None:
    denied = declared_rule("Outbound", 100, "Deny", destinationAddressPrefix=ENDPOINT)
    nsg = Nsg.read("nsg", {"securityRules": [denied]}, [machine], [VNET])
    cloud.apply(nsg_rules([nsg], "nsg"))
    assert not cloud.is_open(machine, ENDPOINT, 443)


def test_a_machine_comes_to_the_internet_by_its_nat_gateway(cloud: Cloud) -> None:
    internet = cloud.bridges[2]
    cloud.apply(address_rules({}, ["10.43.0.0/24"], [internet], "addresses"))
    callers = []
    with cloud.socket(MLFLOW_ADDRESS) as server:
        server.listen()
        for machine in MACHINES:
            with cloud.socket(machine) as client:
                client.connect(server.getsockname())
                accepted, (caller, _) = server.accept()
                accepted.close()
                callers.append(caller)
    assert callers == [INTERNET_GATEWAY, WORKER]


def test_what_comes_from_the_internet_is_counted_by_machine(cloud: Cloud) -> None:
    cloud.apply(traffic_rules([cloud.bridges[2]], "traffic"))
    for source, target in ((STRANGER_ADDRESS, HEAD), (WORKER, HEAD), (HEAD, WORKER)):
        with cloud.socket(source, socket.SOCK_DGRAM) as sender:
            sender.sendto(bytes(1000), (target, 9))
    with cloud.host.entered():
        shown = run("nft", "-j", "list", "set", "ip", "traffic", RECEIVED).stdout
    # The count includes the IP and UDP headers.
    assert counted(shown) == {HEAD: 1028}
