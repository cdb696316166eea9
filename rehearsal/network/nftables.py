"""Declared NSGs as one nftables ruleset, with Azure's semantics.

The ruleset is a table of the family `ip`, since not every kernel tracks connections on a bridge;
net.bridge.bridge-nf-call-iptables=1 leads what passes a bridge there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from rehearsal.security_rules import (
    ANYWHERE,
    Direction,
    Networks,
    Ports,
    Rule,
    azure_name,
    read_rules,
)

HOOKS = ("forward", "output", "input")
"""Between machines; from this host to a machine; from a machine to this host."""


@dataclass(frozen=True)
class AppliedNsg:
    """A declared NSG and whom it protects."""

    name: str
    inputs: Mapping[str, Any]
    """As azure-native declares them."""
    members: tuple[str, ...]
    """Addresses of the machines behind the subnet or the network interface that carries the NSG.
    A machine can be behind two NSGs: what leaves it, or arrives, passes both."""


@dataclass(frozen=True)
class Filter:
    """What one NSG does to the packets of one direction."""

    nsg: str
    direction: Direction
    members: tuple[IPv4Address, ...]
    rules: tuple[Rule, ...]
    """The first that matches decides, and one always does."""


def ruleset(nsgs: Sequence[AppliedNsg], virtual_network: Sequence[str], table: str) -> str:
    """Returns the text for `nft -f -`, which replaces the table in one transaction.

    Established connections outlive that, as on Azure. Every rule has a counter, and a comment
    that says which it is: see `comment`.

    Args:
        virtual_network: The address space of the virtual network, as CIDRs.

    Raises:
        UnsupportedRuleError: A rule cannot be honoured.
    """
    filters = compile_nsgs(nsgs, virtual_network)
    lines = [
        f"table ip {table} {{}}",
        f"delete table ip {table}",
        f"table ip {table} {{",
        *(_hook(hook) for hook in HOOKS),
        "chain machines {",
        "ct state established,related accept",
        *(_jump(place, filter_) for place, filter_ in enumerate(filters) if filter_.members),
        "}",
        *(line for place, filter_ in enumerate(filters) for line in _chain(place, filter_)),
        "}",
    ]
    return "\n".join([*lines, ""])


def compile_nsgs(nsgs: Sequence[AppliedNsg], virtual_network: Sequence[str]) -> list[Filter]:
    """Returns the filters in the order in which a packet meets them: it leaves, then arrives.

    Raises:
        UnsupportedRuleError: A rule cannot be honoured.
    """
    directions: tuple[Direction, ...] = ("Outbound", "Inbound")
    return [
        Filter(
            nsg=azure_name(nsg.name),
            direction=direction,
            members=tuple(IPv4Address(member) for member in nsg.members),
            rules=read_rules(nsg.inputs, direction, virtual_network),
        )
        for direction in directions
        for nsg in nsgs
    ]


def comment(nsg: str, rule: str) -> str:
    """Returns the comment of a rule in the ruleset: both names, each cut to 63 characters.

    nft takes no comment of more than 128.
    """
    return f"{nsg[:63]}/{rule[:63]}"


def _hook(hook: str) -> str:
    return (
        f"chain {hook} {{ type filter hook {hook} priority filter; policy accept; jump machines; }}"
    )


def _jump(place: int, filter_: Filter) -> str:
    end = "saddr" if filter_.direction == "Outbound" else "daddr"
    return f"ip {end} {_set(filter_.members)} jump {_chain_name(place, filter_)}"


def _chain(place: int, filter_: Filter) -> list[str]:
    """Returns the rules; what one allows goes on to the next filter."""
    rules = [_rule(filter_.nsg, rule) for rule in filter_.rules]
    return [f"chain {_chain_name(place, filter_)} {{", *rules, "}"]


def _chain_name(place: int, filter_: Filter) -> str:
    return f"{filter_.direction.lower()}-{place}"


def _rule(nsg: str, rule: Rule) -> str:
    matches = [
        *_match("meta l4proto", rule.protocols),
        *_match("ip saddr", _unless_anywhere(rule.sources)),
        *_match("ip daddr", _unless_anywhere(rule.destinations)),
        *_match("th sport", [_ports(ports) for ports in rule.source_ports]),
        *_match("th dport", [_ports(ports) for ports in rule.destination_ports]),
    ]
    verdict = "return" if rule.allows else "drop"
    return " ".join([*matches, f'counter {verdict} comment "{comment(nsg, rule.name)}"'])


def _match(what: str, values: Sequence[object]) -> list[str]:
    return [f"{what} {_set(values)}"] if values else []


def _unless_anywhere(networks: Networks) -> Networks:
    return () if networks == ANYWHERE else networks


def _ports(ports: Ports) -> str:
    return str(ports.first) if ports.first == ports.last else f"{ports.first}-{ports.last}"


def _set(values: Iterable[object]) -> str:
    return f"{{ {', '.join(map(str, values))} }}"
