"""What Azure does with a packet, read literally from the declared rules.

https://learn.microsoft.com/azure/virtual-network/network-security-groups-overview
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple

from tests.rehearsal.nsg import AppliedNsg
from tests.rehearsal.place import METADATA_ADDRESS


class Packet(NamedTuple):
    """The first packet of a connection."""

    protocol: str
    """Tcp, Udp or Icmp, which leaves the ports aside."""
    source: str
    source_port: int
    destination: str
    destination_port: int


class Decision(NamedTuple):
    """The rule of an NSG that decided about a packet."""

    nsg: str
    rule: str
    access: str


def decisions(
    packet: Packet, nsgs: Sequence[AppliedNsg], virtual_network: Sequence[str]
) -> Iterator[Decision]:
    """Yields what each NSG on the packet's way decides, the last time when one denies it."""
    for direction, machine in (("Outbound", packet.source), ("Inbound", packet.destination)):
        for nsg in nsgs:
            if machine not in nsg.members:
                continue
            rules = [*nsg.inputs["securityRules"], *DEFAULT_RULES]
            for rule in sorted(rules, key=lambda rule: int(rule["priority"])):
                if rule["direction"] == direction and _matches(rule, packet, virtual_network):
                    yield Decision(nsg.name, rule["name"], rule["access"])
                    if rule["access"] == "Deny":
                        return
                    break


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
    # Not a rule of Azure's: its platform lets this pass before it asks any.
    rule(
        *("Outbound", 0, "Allow"),
        name="metadata-service",
        destinationAddressPrefix=METADATA_ADDRESS,
    ),
]


def _matches(rule: dict[str, Any], packet: Packet, virtual_network: Sequence[str]) -> bool:
    ports = {"source": packet.source_port, "destination": packet.destination_port}
    addresses = {"source": packet.source, "destination": packet.destination}
    return rule["protocol"] in ("*", packet.protocol) and all(
        any(
            _is_in(addresses[end], prefix, virtual_network)
            for prefix in _declared(rule, f"{end}AddressPrefix", "es")
        )
        and any(
            _is_at(None if packet.protocol == "Icmp" else ports[end], text)
            for text in _declared(rule, f"{end}PortRange", "s")
        )
        for end in ("source", "destination")
    )


def _declared(rule: dict[str, Any], property_: str, plural: str) -> list[str]:
    return [rule[property_]] if property_ in rule else list(rule[property_ + plural])


def _is_in(address: str, prefix: str, virtual_network: Sequence[str]) -> bool:
    in_vnet = any(ip_address(address) in ip_network(cidr) for cidr in virtual_network)
    if prefix == "VirtualNetwork":
        return in_vnet
    if prefix == "AzureLoadBalancer":
        return address == "168.63.129.16"
    if prefix == "Internet":
        return not in_vnet and address != "168.63.129.16"
    return prefix == "*" or ip_address(address) in ip_network(prefix)


def _is_at(port: int | None, text: str) -> bool:
    """Whether a packet without ports, or with this one, is within a declared range."""
    if text in ("*", "0-65535"):
        return True
    first, _, last = text.partition("-")
    return port is not None and int(first) <= port <= int(last or first)
