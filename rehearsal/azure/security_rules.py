"""Which packets a declared security rule is about, read literally; and Azure's own rules.

https://learn.microsoft.com/azure/virtual-network/network-security-groups-overview
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple


class Packet(NamedTuple):
    """The first packet of a connection."""

    protocol: str
    """Tcp, Udp or Icmp, which leaves the ports aside."""
    source: str
    source_port: int
    destination: str
    destination_port: int


def rule(direction: str, priority: int, access: str, **others: Any) -> dict[str, Any]:
    """Returns a rule as it is declared: about everything, but for what is given."""
    plain: dict[str, Any] = {
        "name": f"{direction}-{priority}",
        "direction": direction,
        "priority": priority,
        "access": access,
        "protocol": "*",
    }
    for property_ in ("AddressPrefix", "PortRange"):
        for end in ("source", "destination"):
            singular = f"{end}{property_}"
            if f"{singular}s" not in others and f"{singular}es" not in others:
                plain[singular] = "*"
    return plain | others


def _vnet(direction: str, name: str) -> dict[str, Any]:
    tag = "VirtualNetwork"
    ends = {"sourceAddressPrefix": tag, "destinationAddressPrefix": tag}
    return rule(direction, 65000, "Allow", name=name, **ends)


DEFAULT_RULES = [
    _vnet("Inbound", "AllowVnetInBound"),
    rule(
        *("Inbound", 65001, "Allow"),
        name="AllowAzureLoadBalancerInBound",
        sourceAddressPrefix="AzureLoadBalancer",
    ),
    rule("Inbound", 65500, "Deny", name="DenyAllInBound"),
    _vnet("Outbound", "AllowVnetOutBound"),
    rule(
        *("Outbound", 65001, "Allow"),
        name="AllowInternetOutBound",
        destinationAddressPrefix="Internet",
    ),
    rule("Outbound", 65500, "Deny", name="DenyAllOutBound"),
]


def matches(rule: dict[str, Any], packet: Packet, virtual_network: Sequence[str]) -> bool:
    """Whether a rule, of either direction, is about a packet."""
    ports = {"source": packet.source_port, "destination": packet.destination_port}
    addresses = {"source": packet.source, "destination": packet.destination}
    return rule["protocol"] in ("*", packet.protocol) and all(
        any(
            is_in(addresses[end], prefix, virtual_network)
            for prefix in values_of(rule, f"{end}AddressPrefix", "es")
        )
        and any(
            is_at(None if packet.protocol == "Icmp" else ports[end], text)
            for text in values_of(rule, f"{end}PortRange", "s")
        )
        for end in ("source", "destination")
    )


def values_of(rule: dict[str, Any], property_: str, plural: str) -> list[str]:
    """Returns what a rule says of a property, in its singular or in its plural."""
    return [rule[property_]] if property_ in rule else list(rule[property_ + plural])


def is_in(address: str, prefix: str, virtual_network: Sequence[str]) -> bool:
    """Whether an address is within a declared prefix or service tag."""
    in_vnet = any(ip_address(address) in ip_network(cidr) for cidr in virtual_network)
    if prefix == "VirtualNetwork":
        return in_vnet
    if prefix == "AzureLoadBalancer":
        return address == "168.63.129.16"
    if prefix == "Internet":
        return not in_vnet and address != "168.63.129.16"
    return prefix == "*" or ip_address(address) in ip_network(prefix)


def is_at(port: int | None, text: str) -> bool:
    """Whether a packet without ports, or with this one, is within a declared range."""
    if text in ("*", "0-65535"):
        return True
    first, _, last = text.partition("-")
    return port is not None and int(first) <= port <= int(last or first)
