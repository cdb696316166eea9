"""NSGs and packets to try, for hypothesis.

There are few addresses and ports, at the edges of each other's ranges, so that rules and packets
often meet.
"""

from __future__ import annotations

from ipaddress import ip_network
from itertools import combinations, permutations, product
from operator import or_
from typing import Any

from hypothesis import strategies as st

from rehearsal.azure.security_rules import Packet, rule
from rehearsal.network.nftables import AppliedNsg
from rehearsal.paths import METADATA_ADDRESS

MACHINES = ("10.42.0.4", "10.42.0.5", "10.42.1.4")
ADDRESSES = (
    *MACHINES,
    *("10.42.255.255", "10.43.0.0", "10.50.0.9", "10.50.1.0"),
    *("168.63.129.16", "168.63.129.17", METADATA_ADDRESS, "8.8.8.8", "203.0.113.7"),
)
PORTS = (0, 1, 21, 22, 23, 80, 443, 65534, 65535)
PACKETS = [
    Packet(protocol, source, source_port, destination, destination_port)
    for protocol in ("Tcp", "Udp", "Icmp")
    for source, destination in permutations(ADDRESSES, 2)
    for source_port, destination_port in product(PORTS, PORTS)
    if source in MACHINES or destination in MACHINES
]
TAGS = ("*", "VirtualNetwork", "Internet", "AzureLoadBalancer")
NETWORKS = {
    str(ip_network(f"{address}/{length}", strict=False))
    for address, length in product(ADDRESSES, (0, 1, 8, 16, 23, 24, 31))
}
PREFIXES = (*TAGS * 5, *ADDRESSES, *sorted(NETWORKS))
RANGES = ("*", *map(str, PORTS), *(f"{a}-{b}" for a, b in combinations(PORTS, 2)))


def virtual_networks() -> st.SearchStrategy[tuple[str, ...]]:
    """Address spaces; there is none while a cloud's vnet is not yet made."""
    return st.sampled_from([("10.42.0.0/16", "10.50.0.0/24"), ("10.42.0.0/23",), ()])


def packets() -> st.SearchStrategy[list[Packet]]:
    """First packets of connections, each from or to a machine, and none like another's answer."""
    one = st.sampled_from(PACKETS)
    return st.lists(one, min_size=10, max_size=25, unique_by=_connection)


def _connection(packet: Packet) -> object:
    ends = {(packet.source, packet.source_port), (packet.destination, packet.destination_port)}
    return packet.protocol, frozenset(ends)


def applied_nsgs() -> st.SearchStrategy[list[AppliedNsg]]:
    """Two NSGs, each over some of the machines."""
    members = st.lists(st.sampled_from(MACHINES), min_size=1, unique=True).map(tuple)
    rules = st.lists(_rules(), min_size=4, max_size=8, unique_by=lambda rule: str(rule["name"]))
    inputs = rules.map(lambda declared: {"securityRules": declared})
    names = ("subnet-nsg", "interface-nsg")
    return st.tuples(
        *(st.builds(AppliedNsg, st.just(name), inputs, members) for name in names)
    ).map(list)


def _rules() -> st.SearchStrategy[dict[str, Any]]:
    directions = st.sampled_from(("Inbound", "Outbound"))
    access = st.sampled_from(("Allow", "Deny"))
    protocols = st.sampled_from(("Tcp", "Udp", "*"))
    with_ports = st.tuples(protocols, _side("source"), _side("destination"))
    icmp = st.tuples(st.just("Icmp"), _prefixes("source"), _prefixes("destination"))
    return st.builds(_rule, directions, st.integers(100, 4096), access, with_ports | icmp)


def _rule(
    direction: str, priority: int, access: str, what: tuple[str, dict[str, Any], dict[str, Any]]
) -> dict[str, Any]:
    protocol, source, destination = what
    return rule(direction, priority, access, protocol=protocol, **source, **destination)


def _side(end: str) -> st.SearchStrategy[dict[str, Any]]:
    ports = _one_or_several(RANGES, f"{end}PortRange", "s")
    return st.builds(or_, _prefixes(end), ports)


def _prefixes(end: str) -> st.SearchStrategy[dict[str, Any]]:
    return _one_or_several(PREFIXES, f"{end}AddressPrefix", "es")


def _one_or_several(
    values: tuple[str, ...], property_: str, plural: str
) -> st.SearchStrategy[dict[str, Any]]:
    """Everything, one value or several, so that rules neither match all nor nothing."""
    one = st.sampled_from(("*",) * len(values) + values)
    several = st.lists(st.sampled_from(values), min_size=2, max_size=5)
    return st.builds(dict, **{property_: one}) | st.builds(dict, **{property_ + plural: several})
