"""Network security groups, and the packets that they allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from rehearsal.addresses import METADATA_ADDRESS
from rehearsal.azure.network.security_rules import (
    ALL_PORTS,
    LOAD_BALANCER,
    Networks,
    Packet,
    Rule,
    UnsupportedRuleError,
    azure_name,
    read_rule,
    service_tags,
)
from rehearsal.azure.resources.resource_kinds import Resources, all_of
from rehearsal.azure.resources.virtual_machines import virtual_machines
from rehearsal.azure.resources.virtual_network import address_space

Direction = Literal["Inbound", "Outbound"]

EPHEMERAL_PORT = 50000
"""The port from which a client connects."""


@dataclass(frozen=True)
class Nsg:
    name: str
    inbound: tuple[Rule, ...]
    """By priority: the first rule that matches decides, and there always is one."""
    outbound: tuple[Rule, ...]
    members: tuple[str, ...]
    """Addresses of the machines whose subnet or network interface has the NSG. A machine can have
    two NSGs: packets from and to it pass both."""

    @classmethod
    def read(
        cls, name: str, inputs: Mapping[str, Any], members: Sequence[str], space: Sequence[str]
    ) -> Nsg:
        """Reads an NSG as azure-native declares it; `space` has the CIDRs of the virtual network.

        Raises UnsupportedRuleError if the rehearsal cannot enforce a rule.
        """
        tags = service_tags(space)
        rules: dict[tuple[str, int], Rule] = {}
        for declared in inputs.get("securityRules") or []:
            rule, key = read_rule(declared, tags), (declared["direction"], declared["priority"])
            if key in rules:
                free = f"any but that of {rules[key].name}"
                raise UnsupportedRuleError(rule.name, "priority", key[1], free)
            rules[key] = rule
        inbound, outbound = (
            [rules[key] for key in sorted(rules) if key[0] == direction]
            for direction in ("Inbound", "Outbound")
        )
        return cls(
            azure_name(name),
            _that_match([*inbound, *_last_inbound(tags)]),
            _that_match([METADATA_RULE, *outbound, *_last_outbound(tags)]),
            tuple(dict.fromkeys(members)),
        )


class Decision(NamedTuple):
    """An NSG's decision about a packet, and the rule that made it."""

    nsg: str
    rule: str
    allows: bool


def applied_nsgs(resources: Resources) -> list[Nsg]:
    """Returns each NSG that protects a machine, through its subnet or its network interface."""
    machines = virtual_machines(resources)
    nsgs = []
    for nsg_id, nsg in all_of(resources, "NetworkSecurityGroup").items():
        members = [vm for vm in machines if nsg_id in (vm.subnet.nsg_id, vm.nsg_id)]
        if members:
            space = address_space(resources, {vm.subnet.vnet_id for vm in members})
            name = nsg.inputs["networkSecurityGroupName"]
            nsgs.append(Nsg.read(name, nsg.inputs, [vm.address for vm in members], space))
    return nsgs


def filters(nsgs: Sequence[Nsg]) -> Iterator[tuple[Direction, Nsg, tuple[Rule, ...]]]:
    """Yields the rules in the order in which they see a packet: outbound, then inbound."""
    for nsg in nsgs:
        yield "Outbound", nsg, nsg.outbound
    for nsg in nsgs:
        yield "Inbound", nsg, nsg.inbound


def decisions(packet: Packet, nsgs: Sequence[Nsg]) -> Iterator[Decision]:
    """Yields the decisions of the NSGs on a packet's way, up to the first denial."""
    for direction, nsg, rules in filters(nsgs):
        if (packet.source if direction == "Outbound" else packet.destination) in nsg.members:
            rule = next(rule for rule in rules if rule.matches(packet))
            yield Decision(nsg.name, rule.name, rule.allows)
            if not rule.allows:
                return


def open_ports(
    nsgs: Sequence[Nsg], source: str, destination: str, protocol: str = "tcp"
) -> set[int]:
    """Returns the ports of a machine that packets from an address reach."""
    rules = [rule for _, _, rules in filters(nsgs) for rule in rules]
    ranges = [ALL_PORTS, *(ports for rule in rules for ports in rule.destination_ports)]
    # All ports between two edges are treated alike.
    edges = {edge for ports in ranges for edge in (ports.start, ports.stop)}
    reached: set[int] = set()
    for first, end in pairwise(sorted(edges)):
        packet = Packet(protocol, source, EPHEMERAL_PORT, destination, first)
        if all(decision.allows for decision in decisions(packet, nsgs)):
            reached |= set(range(first, end))
    return reached


METADATA_RULE = Rule("metadata-service", True, destinations=(IPv4Network(METADATA_ADDRESS),))
"""No NSG can block a machine's metadata service."""


def _last_inbound(tags: Mapping[str, Networks]) -> list[Rule]:
    """Returns Azure's own rules, which follow the declared ones."""
    vnet = tags["VirtualNetwork"]
    return [
        Rule("AllowVnetInBound", True, sources=vnet, destinations=vnet),
        Rule("AllowAzureLoadBalancerInBound", True, sources=LOAD_BALANCER),
        Rule("DenyAllInBound", False),
    ]


def _last_outbound(tags: Mapping[str, Networks]) -> list[Rule]:
    vnet = tags["VirtualNetwork"]
    return [
        Rule("AllowVnetOutBound", True, sources=vnet, destinations=vnet),
        Rule("AllowInternetOutBound", True, destinations=tags["Internet"]),
        Rule("DenyAllOutBound", False),
    ]


def _that_match(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Leaves out rules that no packet matches: for a virtual network without addresses."""
    return tuple(rule for rule in rules if rule.sources and rule.destinations)
