"""The kernel with an NSG ruleset decides as Azure does, for random rules and packets."""

from __future__ import annotations

import json
import socket
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hypothesis import Phase, given, settings

from rehearsal.azure.network.nsg_evaluation import Nsg, decisions
from rehearsal.azure.network.security_rules import Packet
from rehearsal.host_shell import run
from rehearsal.network.nftables import comment, nsg_rules
from tests.rehearsal.network_namespaces import ip, needs, network_namespace
from tests.rehearsal.random_rules import declared_rule, nsgs, packets

TABLE = "nsg"
pytestmark = needs("nft")


# No shrinking, which would take minutes: each example needs its own network.
@settings(max_examples=40, phases=[Phase.explicit, Phase.generate])
@given(nsgs(), packets())
def test_the_kernel_decides_as_azure_does(applied: list[Nsg], sent: list[Packet]) -> None:
    decided = [list(decisions(packet, applied)) for packet in sent]
    with ruled(applied):
        passed = [passes(packet) for packet in sent]
        counted = counters()
    assert passed == [all(decision.allows for decision in each) for each in decided]
    assert counted == Counter(
        comment(decision.nsg, decision.rule) for each in decided for decision in each
    )


@contextmanager
def ruled(applied: Sequence[Nsg]) -> Iterator[None]:
    """Enters a network with a route to everywhere and the ruleset."""
    with network_namespace() as namespace, namespace.entered():
        # A bridge without ports takes every packet; not every kernel has the type `dummy`.
        ip("link add out type bridge", "link set out up arp off", "route add default dev out")
        run("nft", "-f", "-", text=nsg_rules(applied, TABLE))
        yield


def passes(packet: Packet) -> bool:
    """Sends a packet through the output hook."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        try:
            raw.sendto(written(packet), (packet.destination, 0))
        except PermissionError:  # The kernel raises it for a packet that it drops.
            return False
    return True


def written(packet: Packet) -> bytes:
    """Returns the packet's bytes without a checksum, which only a receiver would verify."""
    ports = packet.source_port, packet.destination_port
    number, payload = {
        "tcp": (socket.IPPROTO_TCP, struct.pack("!HHIIBBHHH", *ports, 1, 0, 5 << 4, 2, 64, 0, 0)),
        "udp": (socket.IPPROTO_UDP, struct.pack("!HHHH", *ports, 8, 0)),
        "icmp": (socket.IPPROTO_ICMP, struct.pack("!BBHHH", 8, 0, 0, *ports)),
    }[packet.protocol]
    ends = socket.inet_aton(packet.source), socket.inet_aton(packet.destination)
    size = 20 + len(payload)
    return struct.pack("!BBHHHBBH4s4s", 0x45, 0, size, 0, 0, 64, number, 0, *ends) + payload


def counters() -> Counter[str]:
    """Returns the counted packets by the rules' comments."""
    listed = json.loads(run("nft", "--json", "list", "table", "ip", TABLE).stdout)["nftables"]
    rules = [entry["rule"] for entry in listed if "comment" in entry.get("rule", {})]
    found: Counter[str] = Counter()
    for entry in rules:
        (packets,) = [part["counter"]["packets"] for part in entry["expr"] if "counter" in part]
        found[entry["comment"]] += packets
    return +found


def test_names_of_any_length_are_written() -> None:
    declared = declared_rule("Inbound", 100, "Allow", name="r" * 80)
    inputs = {"securityRules": [declared]}
    nsg = Nsg.read("n" * 80, inputs, ["10.42.0.4"], ["10.42.0.0/16"])
    with ruled([nsg]):
        assert passes(Packet("tcp", "8.8.8.8", 1, "10.42.0.4", 22))
        assert counters() == Counter({comment("n" * 80, "r" * 80): 1})
