"""Network security groups, and what they let through: the one place where they are evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from rehearsal.azure.resource_kinds import Resources, all_of
from rehearsal.azure.security_rules import (
    ALL_PORTS,
    Direction,
    Packet,
    Rule,
    azure_name,
    read_rules,
)
from rehearsal.azure.virtual_machines import virtual_machines
from rehearsal.azure.virtual_network import address_space

EPHEMERAL_PORT = 50000
"""Of whoever connects."""


@dataclass(frozen=True)
class Nsg:
    """An NSG and the machines that it protects."""

    name: str
    inbound: tuple[Rule, ...]
    """By priority: the first rule that matches decides, and one always does."""
    outbound: tuple[Rule, ...]
    members: tuple[str, ...]
    """Addresses of the machines behind the subnet or the network interface that has the NSG.
    A machine can be behind two NSGs: what leaves it, or arrives, passes both."""

    @classmethod
    def read(
        cls, name: str, inputs: Mapping[str, Any], members: Sequence[str], space: Sequence[str]
    ) -> Nsg:
        """Reads an NSG as it is declared.

        Args:
            space: The CIDRs of the virtual network.

        Raises:
            UnsupportedRuleError: A rule cannot be honoured.
        """
        inbound, outbound = (
            read_rules(inputs, direction, space) for direction in ("Inbound", "Outbound")
        )
        return cls(azure_name(name), inbound, outbound, tuple(dict.fromkeys(members)))


class Decision(NamedTuple):
    """The rule by which an NSG decided about a packet."""

    nsg: str
    rule: str
    allows: bool


def applied_nsgs(resources: Resources) -> list[Nsg]:
    """Returns each NSG that protects a machine, by its subnet or its network interface."""
    machines, space = virtual_machines(resources), address_space(resources)
    found = []
    for nsg_id, nsg in all_of(resources, "NetworkSecurityGroup").items():
        members = [vm.address for vm in machines if nsg_id in (vm.subnet.nsg_id, vm.nsg_id)]
        if members:
            name = nsg.inputs["networkSecurityGroupName"]
            found.append(Nsg.read(name, nsg.inputs, members, space))
    return found


def filters(nsgs: Sequence[Nsg]) -> Iterator[tuple[Direction, Nsg, tuple[Rule, ...]]]:
    """Yields the rules in the order in which a packet meets them: it leaves, then arrives."""
    for nsg in nsgs:
        yield "Outbound", nsg, nsg.outbound
    for nsg in nsgs:
        yield "Inbound", nsg, nsg.inbound


def decisions(packet: Packet, nsgs: Sequence[Nsg]) -> Iterator[Decision]:
    """Yields what each NSG on a packet's way decides; the first denial is the last decision."""
    for direction, nsg, rules in filters(nsgs):
        if (packet.source if direction == "Outbound" else packet.destination) in nsg.members:
            rule = next(rule for rule in rules if rule.matches(packet))
            yield Decision(nsg.name, rule.name, rule.allows)
            if not rule.allows:
                return


def open_ports(
    nsgs: Sequence[Nsg], source: str, destination: str, protocol: str = "tcp"
) -> set[int]:
    """Returns every port of a machine that a packet from an address reaches."""
    rules = [rule for _, _, rules in filters(nsgs) for rule in rules]
    ranges = [ALL_PORTS, *(ports for rule in rules for ports in rule.destination_ports)]
    # Between two edges all ports have the same fate.
    edges = {edge for ports in ranges for edge in (ports.start, ports.stop)}
    reached: set[int] = set()
    for first, end in pairwise(sorted(edges)):
        packet = Packet(protocol, source, EPHEMERAL_PORT, destination, first)
        if all(decision.allows for decision in decisions(packet, nsgs)):
            reached |= set(range(first, end))
    return reached
