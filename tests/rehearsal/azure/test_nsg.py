"""NSGs mean in the rehearsal what they mean on Azure; test_nsg_kernel asks the kernel itself."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import Phase, given, settings

from rehearsal.azure.security_rules import Packet, rule
from rehearsal.decisions import Decision, decisions
from rehearsal.network.nftables import AppliedNsg, Filter, compile_nsgs, ruleset
from rehearsal.security_rules import Ports, Rule, UnsupportedRuleError
from tests.infra.stack import declare_stack
from tests.rehearsal.random_rules import applied_nsgs, packets, virtual_networks

VNET = ("10.42.0.0/16",)
HEAD, STRANGER = "10.42.0.4", "203.0.113.99"


# Without shrinking, which takes minutes: decisions that differ name the NSG and the rule.
@settings(max_examples=100, phases=[Phase.explicit, Phase.generate])
@given(applied_nsgs(), virtual_networks(), packets())
def test_compiled_rules_decide_as_azure_does(
    nsgs: list[AppliedNsg], virtual_network: tuple[str, ...], tried: list[Packet]
) -> None:
    filters = compile_nsgs(nsgs, virtual_network)
    for packet in tried:
        assert list(decided(packet, filters)) == list(decisions(packet, nsgs, virtual_network))


def decided(packet: Packet, filters: list[Filter]) -> Iterator[Decision]:
    """Interprets compiled filters: the verdicts that a packet meets, a denial the last."""
    for filter_ in filters:
        machine = packet.source if filter_.direction == "Outbound" else packet.destination
        if IPv4Address(machine) not in filter_.members:
            continue
        rule = next(rule for rule in filter_.rules if matches(rule, packet))
        yield Decision(filter_.nsg, rule.name, "Allow" if rule.allows else "Deny")
        if not rule.allows:
            return


def matches(rule: Rule, packet: Packet) -> bool:
    return (
        (not rule.protocols or packet.protocol.lower() in rule.protocols)
        and any(IPv4Address(packet.source) in network for network in rule.sources)
        and any(IPv4Address(packet.destination) in network for network in rule.destinations)
        and is_at(packet.source_port, rule.source_ports)
        and is_at(packet.destination_port, rule.destination_ports)
    )


def is_at(port: int, ranges: tuple[Ports, ...]) -> bool:
    return not ranges or any(ports.first <= port <= ports.last for ports in ranges)


@pytest.mark.parametrize(
    ("property_", "value", "supported"),
    [
        (
            "sourceAddressPrefix",
            "Storage.WestEurope",
            "VirtualNetwork, AzureLoadBalancer, Internet",
        ),
        ("sourceAddressPrefix", "fd00::/8", "a CIDR of IPv4"),
        ("destinationAddressPrefix", "10.42.0.4/16", "a CIDR of IPv4"),
        ("destinationPortRange", "80,443", "8000-8999"),
        ("destinationPortRange", "443-80", "8000-8999"),
        ("sourcePortRange", "70000", "8000-8999"),
        ("protocol", "Esp", "Tcp, Udp, Icmp, *"),
        ("access", "Permit", "Allow, Deny"),
        ("direction", "Sideways", "Inbound, Outbound"),
        ("priority", 99, "100 to 4096"),
        ("priority", None, "100 to 4096"),
        ("name", 'a"quote', "letters, digits"),
        ("sourceApplicationSecurityGroups", [{"id": "asg"}], "sourceAddressPrefixes"),
    ],
)
def test_what_is_not_supported_says_so(property_: str, value: Any, supported: str) -> None:
    declared = rule("Inbound", 100, "Allow") | {property_: value}
    with pytest.raises(UnsupportedRuleError) as error:
        compile_one(declared)
    message = str(error.value)
    assert message.startswith(f"rule {declared['name']}: {property_} {value!r}: supported is ")
    assert supported in message.partition("supported is ")[2]


def test_a_rule_declares_addresses_and_ports_in_the_singular_or_in_the_plural() -> None:
    both = rule("Inbound", 100, "Allow") | {"sourceAddressPrefixes": ["10.0.0.0/8"]}
    neither = rule("Inbound", 100, "Allow") | {"destinationPortRange": None}
    for declared in (both, neither):
        with pytest.raises(UnsupportedRuleError, match="one of them"):
            compile_one(declared)


def test_icmp_has_no_ports() -> None:
    with pytest.raises(UnsupportedRuleError, match="Icmp with the ports"):
        compile_one(rule("Inbound", 100, "Allow", protocol="Icmp", destinationPortRange="22"))


def test_two_rules_of_a_direction_do_not_share_a_priority() -> None:
    other = rule("Inbound", 100, "Deny", name="other")
    compile_one(rule("Outbound", 100, "Allow"), other)
    with pytest.raises(UnsupportedRuleError, match="rule other: priority 100"):
        compile_one(rule("Inbound", 100, "Allow"), other)


def test_a_machine_reaches_its_metadata_service_whatever_an_nsg_denies() -> None:
    filters = compile_one(rule("Outbound", 100, "Deny"))
    packet = Packet("Tcp", HEAD, 40000, "169.254.169.254", 80)
    assert [decision.access for decision in decided(packet, filters)] == ["Allow"]


def test_a_priority_may_come_as_the_number_that_the_engine_sends() -> None:
    (_, inbound) = compile_one(
        rule("Inbound", 4096, "Deny") | {"priority": 4096.0},
        rule("Inbound", 200, "Allow") | {"priority": 200.0},
    )
    assert [rule.allows for rule in inbound.rules][:2] == [True, False]


def test_the_projects_own_nsgs_are_supported() -> None:
    for found in declare_stack().all("NetworkSecurityGroup"):
        assert "deny-all-else" in ruleset(
            [AppliedNsg(found.name, found.inputs, (HEAD,))], VNET, "t"
        )


def compile_one(*rules: dict[str, Any]) -> list[Filter]:
    """Compiles an NSG of these rules over HEAD."""
    return compile_nsgs([AppliedNsg("nsg", {"securityRules": list(rules)}, (HEAD,))], VNET)
