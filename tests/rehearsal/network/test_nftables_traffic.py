"""NSGs between machines, their host and the internet: what connects, and what a change cuts."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import pytest

from rehearsal.addresses import METADATA_ADDRESS
from rehearsal.azure.nsg import Nsg
from rehearsal.network.nftables import nsg_rules
from rehearsal.shell import run
from tests.rehearsal.network_namespaces import (
    BRIDGED,
    NetworkNamespace,
    ip,
    needs,
    network_namespace,
)
from tests.rehearsal.random_rules import declared_rule

pytestmark = needs("nft", bridges=True)

SPACE = ["10.42.0.0/16"]
HOST, HEAD, WORKER, OTHER_WORKER = "10.42.0.1", "10.42.0.4", "10.42.1.4", "10.42.1.5"
ADMIN = "203.0.113.7"
SUBNETS = {HOST: [HEAD], "10.42.1.1": [WORKER, OTHER_WORKER], "203.0.113.1": [ADMIN]}
"""Machines by the host's address in their subnet."""


@dataclass(frozen=True)
class Cloud:
    """Machines on the bridges of a host."""

    host: NetworkNamespace
    at: dict[str, NetworkNamespace]
    """By address."""

    def apply(self, *nsgs: Nsg) -> None:
        with self.host.entered():
            run("nft", "-f", "-", text=nsg_rules(nsgs, "nsg"))

    def is_open(self, source: str, target: str, port: int = 9) -> bool:
        """Whether a connection reaches a port, be it refused there."""
        with self.socket(source) as client:
            client.settimeout(0.5)
            return client.connect_ex((target, port)) in (0, errno.ECONNREFUSED)

    def socket(self, address: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """Returns one that is bound to some port of an address."""
        with self.at[address].entered():
            made = socket.socket(socket.AF_INET, kind)
        made.bind((address, 0))
        made.settimeout(5)
        return made


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with ExitStack() as stack:
        made = Cloud(stack.enter_context(network_namespace()), {})
        made.at[HOST] = made.host
        with made.host.entered():
            BRIDGED.write_text("1")
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
            ip("link set lo up", f"address add {METADATA_ADDRESS}/32 dev lo")
        for place, (gateway, machines) in enumerate(SUBNETS.items()):
            bridge = f"bridge{place}"
            with made.host.entered():
                ip(f"link add {bridge} type bridge forward_delay 0", f"link set {bridge} up")
                ip(f"address add {gateway}/24 dev {bridge}")
            for address in machines:
                made.at[address] = stack.enter_context(network_namespace())
                with made.host.entered():
                    cable, netns = f"cable{len(made.at)}", made.at[address].path
                    ip(f"link add {cable} type veth peer name eth0 netns {netns}")
                    ip(f"link set {cable} master {bridge} up")
                with made.at[address].entered():
                    ip("link set eth0 up", f"address add {address}/24 dev eth0")
                    ip(f"route add default via {gateway}")
        yield made


# Every way that packets go


def over_worker(direction: str, access: str) -> Nsg:
    """Returns an NSG of one rule, which comes before all others."""
    rules = {"securityRules": [declared_rule(direction, 100, access)]}
    return Nsg.read("nsg", rules, [WORKER], SPACE)


@pytest.mark.parametrize("target", [HEAD, OTHER_WORKER, HOST, ADMIN])
def test_a_machine_reaches_nobody_whom_its_outbound_rules_deny(cloud: Cloud, target: str) -> None:
    cloud.apply(over_worker("Outbound", "Deny"))
    assert not cloud.is_open(WORKER, target)
    cloud.apply(over_worker("Outbound", "Allow"))
    assert cloud.is_open(WORKER, target)


@pytest.mark.parametrize("source", [HEAD, OTHER_WORKER, HOST, ADMIN])
def test_nobody_reaches_a_machine_whose_inbound_rules_deny_it(cloud: Cloud, source: str) -> None:
    cloud.apply(over_worker("Inbound", "Deny"))
    assert not cloud.is_open(source, WORKER)
    cloud.apply(over_worker("Inbound", "Allow"))
    assert cloud.is_open(source, WORKER)


def test_a_machine_reaches_its_metadata_service_whatever_is_denied(cloud: Cloud) -> None:
    cloud.apply(over_worker("Outbound", "Deny"))
    assert cloud.is_open(WORKER, METADATA_ADDRESS, 80)


# Changes


def test_a_connection_outlives_the_rule_that_let_it_in(cloud: Cloud) -> None:
    cloud.apply(over_worker("Inbound", "Allow"))
    with cloud.socket(WORKER) as server, cloud.socket(HEAD) as client:
        server.listen()
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        cloud.apply(over_worker("Inbound", "Deny"))
        assert not cloud.is_open(HEAD, *server.getsockname())
        with accepted:
            for one, other in ((client, accepted), (accepted, client)):
                one.sendall(b"still here")
                assert other.recv(10) == b"still here"


def test_nothing_slips_through_while_the_rules_are_replaced(cloud: Cloud) -> None:
    cloud.apply(over_worker("Inbound", "Deny"))
    datagrams = socket.SOCK_DGRAM
    with cloud.socket(WORKER, datagrams) as receiver, cloud.socket(HEAD, datagrams) as sender:
        over = Event()

        def send(what: bytes) -> None:
            while not over.is_set():
                sender.sendto(what, receiver.getsockname())

        thread = Thread(target=send, args=[b"denied"])
        thread.start()
        for _ in range(20):
            cloud.apply(over_worker("Inbound", "Deny"))
        over.set()
        thread.join()
        cloud.apply(over_worker("Inbound", "Allow"))
        sender.sendto(b"allowed", receiver.getsockname())
        assert receiver.recv(10) == b"allowed"
