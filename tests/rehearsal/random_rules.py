"""Random NSGs and packets for hypothesis, and one declared rule for tests that write their own.

The few addresses and ports lie at the edges of each other's ranges, so that rules often match
packets.
"""

from __future__ import annotations

from ipaddress import ip_network
from itertools import combinations, permutations, product
from operator import or_
from typing import Any

from hypothesis import strategies as st

from rehearsal.addresses import METADATA_ADDRESS
from rehearsal.azure.network.nsg_evaluation import Nsg
from rehearsal.azure.network.security_rules import Packet
from rehearsal.azure.resources.resource_kinds import Properties


def declared_rule(direction: str, priority: int, access: str, **others: Any) -> Properties:
    """Returns a declared rule that matches everything, except for the fields given."""
    plain: Properties = {
        "name": f"{direction}-{priority}",
        "direction": direction,
        "priority": priority,
        "access": access,
        "protocol": "*",
    }
    for property_, plural in (("AddressPrefix", "es"), ("PortRange", "s")):
        for end in ("source", "destination"):
            if f"{end}{property_}{plural}" not in others:
                plain[f"{end}{property_}"] = "*"
    return plain | others


MACHINES = ("10.42.0.4", "10.42.0.5", "10.42.1.4")
ADDRESSES = (
    *MACHINES,
    "10.42.255.255",
    "10.43.0.0",
    "10.50.0.9",
    "10.50.1.0",
    "168.63.129.16",
    "168.63.129.17",
    METADATA_ADDRESS,
    "8.8.8.8",
    "203.0.113.7",
)
PORTS = (0, 1, 21, 22, 23, 80, 443, 65534, 65535)
PACKETS = [
    Packet(protocol, source, source_port, destination, destination_port)
    for protocol in ("tcp", "udp", "icmp")
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


ADDRESS_SPACES = (("10.42.0.0/16", "10.50.0.0/24"), ("10.42.0.0/23",), ())
"""Address spaces of virtual networks; empty until Azure has created the network."""


def packets() -> st.SearchStrategy[list[Packet]]:
    """Draws first packets of connections from or to a machine; none looks like another's answer."""
    packet = st.sampled_from(PACKETS)
    return st.lists(packet, min_size=10, max_size=25, unique_by=_connection)


def _connection(packet: Packet) -> object:
    ends = {(packet.source, packet.source_port), (packet.destination, packet.destination_port)}
    return packet.protocol, frozenset(ends)


def nsgs() -> st.SearchStrategy[list[Nsg]]:
    """Draws two NSGs in one virtual network, each for some of the machines."""
    rules = st.lists(_rules(), min_size=4, max_size=8, unique_by=lambda rule: str(rule["name"]))
    inputs = rules.map(lambda declared: {"securityRules": declared})
    members = st.lists(st.sampled_from(MACHINES), min_size=1, unique=True)
    return st.sampled_from(ADDRESS_SPACES).flatmap(
        lambda space: st.tuples(
            *(
                st.builds(Nsg.read, st.just(name), inputs, members, st.just(space))
                for name in ("subnet-nsg", "interface-nsg")
            )
        ).map(list)
    )


def _rules() -> st.SearchStrategy[Properties]:
    directions = st.sampled_from(("Inbound", "Outbound"))
    access = st.sampled_from(("Allow", "Deny"))
    protocols = st.sampled_from(("Tcp", "Udp", "*"))
    with_ports = st.tuples(protocols, _side("source"), _side("destination"))
    icmp = st.tuples(st.just("Icmp"), _prefixes("source"), _prefixes("destination"))
    return st.builds(_rule, directions, st.integers(100, 4096), access, with_ports | icmp)


def _rule(
    direction: str, priority: int, access: str, what: tuple[str, Properties, Properties]
) -> Properties:
    protocol, source, destination = what
    return declared_rule(direction, priority, access, protocol=protocol, **source, **destination)


def _side(end: str) -> st.SearchStrategy[Properties]:
    ports = _one_or_several(RANGES, f"{end}PortRange", "s")
    return st.builds(or_, _prefixes(end), ports)


def _prefixes(end: str) -> st.SearchStrategy[Properties]:
    return _one_or_several(PREFIXES, f"{end}AddressPrefix", "es")


def _one_or_several(
    values: tuple[str, ...], property_: str, plural: str
) -> st.SearchStrategy[Properties]:
    """Draws everything, one value or several, so that rules match some packets but not all."""
    single = st.sampled_from(("*",) * len(values) + values)
    several = st.lists(st.sampled_from(values), min_size=2, max_size=5)
    return st.builds(dict, **{property_: single}) | st.builds(dict, **{property_ + plural: several})
