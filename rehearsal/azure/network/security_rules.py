"""Reads a declared security rule as networks and port ranges.

A rule that Azure would refuse, or that a rehearsal cannot enforce, is an error.
https://learn.microsoft.com/azure/virtual-network/network-security-groups-overview
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, collapse_addresses
from typing import Any, NamedTuple

Networks = tuple[IPv4Network, ...]

ANYWHERE: Networks = (IPv4Network("0.0.0.0/0"),)
LOAD_BALANCER: Networks = (IPv4Network("168.63.129.16/32"),)
ALL_PORTS = range(65536)
PROTOCOLS = {"Tcp": ("tcp",), "Udp": ("udp",), "Icmp": ("icmp",), "*": ()}
ENDS = ("AddressPrefix", "AddressPrefixes", "PortRange", "PortRanges")
PROPERTIES = {
    "name",
    "description",
    "priority",
    "direction",
    "access",
    "protocol",
    *(f"{end}{what}" for end in ("source", "destination") for what in ENDS),
}


class UnsupportedRuleError(Exception):
    """Azure would refuse a rule, or the rehearsal cannot enforce it."""

    def __init__(self, rule: object, property_: str, value: object, supported: str) -> None:
        super().__init__(f"rule {rule}: {property_} {value!r}: supported is {supported}")


class Packet(NamedTuple):
    """The first packet of a connection."""

    protocol: str
    """tcp, udp, or icmp, where the ports have no meaning."""
    source: str
    source_port: int
    destination: str
    destination_port: int


@dataclass(frozen=True)
class Rule:
    """A rule; it matches a packet if all of its fields do."""

    name: str
    allows: bool
    protocols: tuple[str, ...] = ()
    """Empty: all."""
    sources: Networks = ANYWHERE
    destinations: Networks = ANYWHERE
    source_ports: tuple[range, ...] = ()
    """Empty: all, including packets without ports."""
    destination_ports: tuple[range, ...] = ()

    def matches(self, packet: Packet) -> bool:
        return (
            (not self.protocols or packet.protocol in self.protocols)
            and any(IPv4Address(packet.source) in network for network in self.sources)
            and any(IPv4Address(packet.destination) in network for network in self.destinations)
            and _is_in(packet.source_port, self.source_ports)
            and _is_in(packet.destination_port, self.destination_ports)
        )


def _is_in(port: int, ranges: tuple[range, ...]) -> bool:
    return not ranges or any(port in ports for ports in ranges)


def read_rule(declared: Mapping[str, Any], tags: Mapping[str, Networks]) -> Rule:
    """Reads a rule as azure-native declares it; `tags` are the service tags that it may contain.

    Raises UnsupportedRuleError if the rule cannot be enforced.
    """
    name = azure_name(declared.get("name"))
    for property_, value in declared.items():
        if property_ not in PROPERTIES and value:
            raise UnsupportedRuleError(name, property_, value, ", ".join(sorted(PROPERTIES)))
    _one_of(declared, "direction", ("Inbound", "Outbound"))
    if (priority := declared.get("priority")) not in range(100, 4097):
        raise UnsupportedRuleError(name, "priority", priority, "100 to 4096")
    protocols = PROTOCOLS[_one_of(declared, "protocol", PROTOCOLS)]
    source_ports = _ports(declared, "sourcePortRange")
    destination_ports = _ports(declared, "destinationPortRange")
    if source_ports or destination_ports:
        if protocols == ("icmp",):
            raise UnsupportedRuleError(name, "protocol", "Icmp", "Icmp with the ports *")
        protocols = protocols or ("tcp", "udp")
    return Rule(
        name=name,
        allows=_one_of(declared, "access", ("Allow", "Deny")) == "Allow",
        protocols=protocols,
        sources=_networks(declared, "sourceAddressPrefix", tags),
        destinations=_networks(declared, "destinationAddressPrefix", tags),
        source_ports=source_ports,
        destination_ports=destination_ports,
    )


def azure_name(name: Any) -> str:
    """Returns the name of an NSG or of a rule, if Azure allows it."""
    if not re.fullmatch(r"(?a:\w([\w.-]{0,78}\w)?)", str(name)):
        raise UnsupportedRuleError(name, "name", name, "1 to 80 letters, digits, _, . and -")
    return str(name)


def service_tags(address_space: Sequence[str]) -> dict[str, Networks]:
    """Returns the networks of each service tag in a virtual network with these CIDRs."""
    vnet = tuple(collapse_addresses(map(IPv4Network, address_space)))
    internet = ANYWHERE
    for taken in (*vnet, *LOAD_BALANCER):
        internet = tuple(part for network in internet for part in _without(network, taken))
    return {
        "*": ANYWHERE,
        "VirtualNetwork": vnet,
        "AzureLoadBalancer": LOAD_BALANCER,
        "Internet": internet,
    }


def _one_of(declared: Mapping[str, Any], property_: str, supported: Collection[str]) -> str:
    value = declared.get(property_)
    if value not in supported:
        raise UnsupportedRuleError(declared["name"], property_, value, ", ".join(supported))
    return str(value)


def _values(declared: Mapping[str, Any], property_: str, plural: str) -> list[str]:
    """Returns the values of a property, which an augmented rule declares in the plural."""
    single, several = declared.get(property_), declared.get(plural)
    if bool(single) == bool(several):
        supported = f"this or {plural}, one of them"
        raise UnsupportedRuleError(declared["name"], property_, single, supported)
    return [str(value) for value in several or [single]]


def _networks(
    declared: Mapping[str, Any], property_: str, tags: Mapping[str, Networks]
) -> Networks:
    networks: list[IPv4Network] = []
    for prefix in _values(declared, property_, f"{property_}es"):
        try:
            networks += tags[prefix] if prefix in tags else [IPv4Network(prefix)]
        except ValueError as error:
            supported = f"a CIDR of IPv4, {', '.join(tags)}"
            raise UnsupportedRuleError(declared["name"], property_, prefix, supported) from error
    return tuple(networks)


def _ports(declared: Mapping[str, Any], property_: str) -> tuple[range, ...]:
    values = _values(declared, property_, f"{property_}s")
    ranges = tuple(_range(declared, property_, value) for value in values)
    return () if ALL_PORTS in ranges else ranges


def _range(declared: Mapping[str, Any], property_: str, text: str) -> range:
    parts = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", "0-65535" if text == "*" else text)
    ports = range(int(parts[1]), int(parts[2] or parts[1]) + 1) if parts else range(0)
    if not ports or ports[-1] not in ALL_PORTS:
        raise UnsupportedRuleError(declared["name"], property_, text, "*, 22 or 8000-8999")
    return ports


def _without(network: IPv4Network, taken: IPv4Network) -> Iterable[IPv4Network]:
    return network.address_exclude(taken) if taken.subnet_of(network) else [network]
