"""NSGs between machines, their host and the internet: allowed and cut connections."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from threading import Event, Thread

import pytest

from rehearsal.addresses import METADATA_ADDRESS
from rehearsal.azure.network.nsg_evaluation import Nsg
from rehearsal.network.nftables import nsg_rules
from tests.rehearsal.network.cloud import Cloud
from tests.rehearsal.network.cloud import cloud as make_cloud
from tests.rehearsal.network_namespaces import needs
from tests.rehearsal.random_rules import declared_rule

pytestmark = needs("nft", bridges=True)

SPACE = ["10.42.0.0/16"]
HOST, HEAD, WORKER, OTHER_WORKER = "10.42.0.1", "10.42.0.4", "10.42.1.4", "10.42.1.5"
ADMIN = "203.0.113.7"
SUBNETS = {HOST: [HEAD], "10.42.1.1": [WORKER, OTHER_WORKER], "203.0.113.1": [ADMIN]}
"""Machines by the host's address in their subnet."""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with make_cloud(SUBNETS, [METADATA_ADDRESS], HOST) as made:
        yield made


# Every path of a packet


def over_worker(direction: str, access: str) -> Nsg:
    """Returns an NSG with one rule, which precedes all others."""
    rules = {"securityRules": [declared_rule(direction, 100, access)]}
    return Nsg.read("nsg", rules, [WORKER], SPACE)


@pytest.mark.parametrize("target", [HEAD, OTHER_WORKER, HOST, ADMIN])
def test_a_machine_reaches_nobody_whom_its_outbound_rules_deny(cloud: Cloud, target: str) -> None:
    cloud.apply(nsg_rules([over_worker("Outbound", "Deny")], "nsg"))
    assert not cloud.is_open(WORKER, target)
    cloud.apply(nsg_rules([over_worker("Outbound", "Allow")], "nsg"))
    assert cloud.is_open(WORKER, target)


@pytest.mark.parametrize("source", [HEAD, OTHER_WORKER, HOST, ADMIN])
def test_nobody_reaches_a_machine_whose_inbound_rules_deny_it(cloud: Cloud, source: str) -> None:
    cloud.apply(nsg_rules([over_worker("Inbound", "Deny")], "nsg"))
    assert not cloud.is_open(source, WORKER)
    cloud.apply(nsg_rules([over_worker("Inbound", "Allow")], "nsg"))
    assert cloud.is_open(source, WORKER)


def test_a_machine_reaches_its_metadata_service_whatever_is_denied(cloud: Cloud) -> None:
    cloud.apply(nsg_rules([over_worker("Outbound", "Deny")], "nsg"))
    assert cloud.is_open(WORKER, METADATA_ADDRESS, 80)


# Changes


def test_a_connection_outlives_the_rule_that_let_it_in(cloud: Cloud) -> None:
    cloud.apply(nsg_rules([over_worker("Inbound", "Allow")], "nsg"))
    with cloud.socket(WORKER) as server, cloud.socket(HEAD) as client:
        server.listen()
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        cloud.apply(nsg_rules([over_worker("Inbound", "Deny")], "nsg"))
        assert not cloud.is_open(HEAD, *server.getsockname())
        with accepted:
            for sender, receiver in ((client, accepted), (accepted, client)):
                sender.sendall(b"still here")
                assert receiver.recv(10) == b"still here"


def test_nothing_slips_through_while_the_rules_are_replaced(cloud: Cloud) -> None:
    cloud.apply(nsg_rules([over_worker("Inbound", "Deny")], "nsg"))
    datagrams = socket.SOCK_DGRAM
    with cloud.socket(WORKER, datagrams) as receiver, cloud.socket(HEAD, datagrams) as sender:
        over = Event()

        def send(what: bytes) -> None:
            while not over.is_set():
                sender.sendto(what, receiver.getsockname())

        thread = Thread(target=send, args=[b"denied"])
        thread.start()
        for _ in range(20):
            cloud.apply(nsg_rules([over_worker("Inbound", "Deny")], "nsg"))
        over.set()
        thread.join()
        cloud.apply(nsg_rules([over_worker("Inbound", "Allow")], "nsg"))
        sender.sendto(b"allowed", receiver.getsockname())
        assert receiver.recv(10) == b"allowed"
