"""The port scan finds the open ports between two machines, namespaces on a bridge."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from rehearsal.host_shell import CommandError, run
from rehearsal.network.port_scan import Reached, scan_from
from tests.rehearsal.network_namespaces import NetworkNamespace, ip, needs, network_namespace

SOURCE, TARGET = "10.77.0.1", "10.77.0.2"
PORTS = frozenset(range(1, 65536))
LISTENING = frozenset({22, 6379})
ALLOWED = frozenset({6379, 8076, *range(10100, 10200)})
ALLOW = "tcp dport { 6379, 8076, 10100-10199 } accept"
INTO_TARGET = f"ip saddr {SOURCE} ip daddr {TARGET}"


pytestmark = needs("nft", "nsenter", bridges=True)


@dataclass(frozen=True)
class Machines:
    """Two machines and the bridge between them, each with its own network."""

    network: NetworkNamespace
    """The bridge's network."""
    source: NetworkNamespace
    target: NetworkNamespace

    def scan(self) -> Reached:
        return scan_from(Path(self.source.path), SOURCE, TARGET)

    def network_rules(self, inbound: str) -> None:
        """Filters new connections from source to target on the bridge by `inbound`."""
        set_rules(self.network, "forward", inbound)


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with (
        network_namespace() as network,
        network_namespace() as source,
        network_namespace() as target,
        ExitStack() as until_the_end,
    ):
        with network.entered():
            ip("link add bridge type bridge", "link set bridge up")
        for name, machine, address in (("source", source, SOURCE), ("target", target, TARGET)):
            with network.entered():
                ip(
                    f"link add {name} type veth peer name host0 netns {machine.path}",
                    f"link set {name} master bridge up",
                )
            with machine.entered():
                ip(f"address add {address}/24 dev host0", "link set host0 up")
        with target.entered():
            for port in LISTENING:
                until_the_end.enter_context(socket.create_server(("", port)))
        with source.entered():
            # A link takes time to come up; until ARP is answered, all ports seem closed.
            socket.create_connection((TARGET, min(LISTENING)), timeout=10).close()
        yield Machines(network, source, target)


@pytest.fixture(autouse=True)
def no_rules(machines: Machines) -> None:
    for namespace in (machines.network, machines.source):
        with namespace.entered():
            run("nft", "flush", "ruleset")


def test_exactly_the_allowed_ports_are_found(machines: Machines) -> None:
    machines.network_rules(f"{ALLOW}; drop")
    reached = machines.scan()
    assert reached.passed == ALLOWED
    assert reached.listening == {6379}


def test_without_rules_every_port_is_found(machines: Machines) -> None:
    reached = machines.scan()
    assert reached.passed == PORTS
    assert reached.listening == LISTENING
    assert reached.refused == PORTS - LISTENING


def test_none_is_found_when_all_is_dropped(machines: Machines) -> None:
    machines.network_rules("drop")
    assert machines.scan() == Reached(frozenset(), frozenset())


def test_a_rule_of_the_sender_s_own_host_counts_too(machines: Machines) -> None:
    set_rules(machines.source, "output", f"{ALLOW}; drop")
    assert machines.scan().passed == ALLOWED


def test_a_segment_that_was_lost_is_sent_again(machines: Machines) -> None:
    machines.network_rules(f"tcp dport != @asked add @asked {{ tcp dport }} drop; {ALLOW}; drop")
    assert machines.scan().passed == ALLOWED


def test_what_a_scan_leaves_behind_opens_nothing_for_the_next_one(machines: Machines) -> None:
    machines.network_rules(f"{ALLOW}; drop")
    before = machines.scan()
    machines.network_rules("tcp dport 22 accept; drop")
    assert before.passed == ALLOWED
    assert machines.scan().passed == {22}


def test_an_address_that_the_source_has_not_is_an_error(machines: Machines) -> None:
    with pytest.raises(CommandError, match="Cannot assign requested address"):
        scan_from(Path(machines.source.path), "10.77.0.9", TARGET)


def set_rules(namespace: NetworkNamespace, hook: str, inbound: str) -> None:
    """Installs the rules `inbound`, separated by semicolons, where an NSG has them, atomically."""
    ruleset = f"""
        flush ruleset
        table ip nsg {{
            set asked {{ type inet_service; size 65535; flags dynamic; }}
            chain {hook} {{
                type filter hook {hook} priority filter; policy accept;
                ct state established,related accept
                {INTO_TARGET} jump inbound
            }}
            chain inbound {{
                {inbound}
            }}
        }}
    """
    with namespace.entered():
        run("nft", "-f", "-", text=ruleset)
