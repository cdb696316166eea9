"""What Azure does with a packet on its way: each NSG by the first of its rules that matches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rehearsal.azure.security_rules import DEFAULT_RULES, Packet, matches, rule
from rehearsal.network.nftables import AppliedNsg
from rehearsal.paths import METADATA_ADDRESS


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
            rules = [*nsg.inputs["securityRules"], *DEFAULT_RULES, METADATA_RULE]
            for one in sorted(rules, key=lambda one: int(one["priority"])):
                if one["direction"] == direction and matches(one, packet, virtual_network):
                    yield Decision(nsg.name, one["name"], one["access"])
                    if one["access"] == "Deny":
                        return
                    break


# Not a rule of Azure's: its platform lets this pass before it asks any.
METADATA_RULE = rule(
    *("Outbound", 0, "Allow"), name="metadata-service", destinationAddressPrefix=METADATA_ADDRESS
)
