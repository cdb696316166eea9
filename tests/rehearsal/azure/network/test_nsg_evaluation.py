"""Packets that an NSG allows by Azure's documentation; test_nftables_kernel tests the kernel.

https://learn.microsoft.com/azure/virtual-network/network-security-groups-overview
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

import pytest

from rehearsal.azure.network.nsg_evaluation import (
    Decision,
    Nsg,
    applied_nsgs,
    decisions,
    open_ports,
)
from rehearsal.azure.network.security_rules import Packet, UnsupportedRuleError
from rehearsal.azure.resources.resource_kinds import Properties
from tests.infra.declared_stack import EXISTING_SUBNETS, declare_stack
from tests.rehearsal.random_rules import declared_rule

SPACE = ["10.42.0.0/16", "10.50.0.0/24"]
HEAD, WORKER, STRANGER = "10.42.0.4", "10.42.1.4", "203.0.113.99"
LOAD_BALANCER = "168.63.129.16"


def nsg(*rules: Properties, name: str = "nsg", member: str = HEAD) -> Nsg:
    return Nsg.read(name, {"securityRules": list(rules)}, [member], SPACE)


def decides(*rules: Properties, **packet: Any) -> str:
    """Returns the rule that decides about a packet from the stranger to the head's SSH, by name."""
    plain = Packet("tcp", STRANGER, 50000, HEAD, 22)
    (decision,) = decisions(plain._replace(**packet), [nsg(*rules)])
    return decision.rule


# The packets that a rule matches

ADDRESSES: dict[str, tuple[list[str], list[str]]] = {
    "*": ([WORKER, STRANGER, LOAD_BALANCER, "0.0.0.0", "255.255.255.255"], []),
    "VirtualNetwork": (
        ["10.42.0.0", "10.42.255.255", "10.50.0.9"],
        ["10.41.255.255", "10.43.0.0", "10.50.1.0", STRANGER, LOAD_BALANCER],
    ),
    "Internet": (
        ["10.41.255.255", "10.43.0.0", "10.50.1.0", STRANGER, "168.63.129.17"],
        ["10.42.0.0", "10.42.255.255", "10.50.0.9", LOAD_BALANCER],
    ),
    "AzureLoadBalancer": ([LOAD_BALANCER], ["168.63.129.17", "168.63.129.15", WORKER]),
    "203.0.113.0/24": (["203.0.113.0", "203.0.113.255"], ["203.0.112.255", "203.0.114.0"]),
    "203.0.113.7": (["203.0.113.7"], ["203.0.113.6", "203.0.113.8"]),
    "0.0.0.0/0": ([WORKER, STRANGER], []),
}
PORTS: dict[str, tuple[list[int], list[int]]] = {
    "*": ([0, 1, 65535], []),
    "0-65535": ([0, 1, 65535], []),
    "22": ([22], [21, 23]),
    "80-443": ([80, 443], [79, 444]),
    "0-1": ([0, 1], [2]),
    "65534-65535": ([65534, 65535], [65533]),
}


@pytest.mark.parametrize("prefix", ADDRESSES)
@pytest.mark.parametrize("end", ["source", "destination"])
def test_a_prefix_is_about_its_addresses(end: str, prefix: str) -> None:
    direction, head = ("Inbound", "destination") if end == "source" else ("Outbound", "source")
    rule = declared_rule(direction, 100, "Allow", **{f"{end}AddressPrefix": prefix})
    inside, outside = (
        {decides(rule, **{head: HEAD, end: address}) for address in addresses}
        for addresses in ADDRESSES[prefix]
    )
    assert inside == {rule["name"]}
    assert rule["name"] not in outside


@pytest.mark.parametrize("ports", PORTS)
@pytest.mark.parametrize("end", ["source", "destination"])
def test_a_port_range_has_both_its_ends(end: str, ports: str) -> None:
    rule = declared_rule("Inbound", 100, "Allow", **{f"{end}PortRange": ports})
    inside, outside = ({decides(rule, **{f"{end}_port": n}) for n in each} for each in PORTS[ports])
    assert inside == {"Inbound-100"}
    assert "Inbound-100" not in outside


@pytest.mark.parametrize(
    ("plural", "other"),
    [
        ({"sourceAddressPrefixes": ["8.8.8.8", STRANGER]}, {"source": "8.8.4.4"}),
        ({"sourcePortRanges": ["1", "40000-60000"]}, {"source_port": 2}),
        ({"destinationPortRanges": ["22", "80"]}, {"destination_port": 23}),
    ],
)
def test_a_list_is_about_all_of_its_values(plural: Properties, other: dict[str, Any]) -> None:
    rule = declared_rule("Inbound", 100, "Allow", **plural)
    assert [decides(rule), decides(rule, **other)] == ["Inbound-100", "DenyAllInBound"]


@pytest.mark.parametrize("declared", ["Tcp", "Udp", "Icmp", "*"])
@pytest.mark.parametrize("protocol", ["tcp", "udp", "icmp"])
def test_a_rule_is_about_its_protocol(declared: str, protocol: str) -> None:
    rule = declared_rule("Inbound", 100, "Allow", protocol=declared)
    matches = decides(rule, protocol=protocol) == "Inbound-100"
    assert matches == (declared in ("*", protocol.title()))


def test_a_rule_about_ports_is_not_about_icmp() -> None:
    rule = declared_rule("Inbound", 100, "Allow", destinationPortRange="22")
    rules = [decides(rule, protocol=protocol) for protocol in ("tcp", "udp", "icmp")]
    assert rules == ["Inbound-100", "Inbound-100", "DenyAllInBound"]


# The rule that decides


def test_the_lowest_priority_number_decides() -> None:
    rules = [declared_rule("Inbound", priority, "Allow") for priority in (4096, 100, 200)]
    assert decides(*rules) == "Inbound-100"


def test_a_rule_of_the_other_direction_decides_nothing() -> None:
    assert decides(declared_rule("Outbound", 100, "Allow")) == "DenyAllInBound"


@pytest.mark.parametrize(
    ("source", "destination", "rule", "allows"),
    [
        (WORKER, HEAD, "AllowVnetInBound", True),
        (LOAD_BALANCER, HEAD, "AllowAzureLoadBalancerInBound", True),
        (STRANGER, HEAD, "DenyAllInBound", False),
        (HEAD, WORKER, "AllowVnetOutBound", True),
        (HEAD, STRANGER, "AllowInternetOutBound", True),
        (HEAD, LOAD_BALANCER, "DenyAllOutBound", False),
    ],
)
def test_azures_own_rules_come_last(source: str, destination: str, rule: str, allows: bool) -> None:
    packet = Packet("tcp", source, 50000, destination, 80)
    assert list(decisions(packet, [nsg()])) == [Decision("nsg", rule, allows)]


def test_a_machine_reaches_its_metadata_service_whatever_an_nsg_denies() -> None:
    rule = declared_rule("Outbound", 100, "Deny")
    assert decides(rule, source=HEAD, destination="169.254.169.254") == "metadata-service"


def test_a_priority_may_come_as_the_number_that_the_engine_sends() -> None:
    last, first = (declared_rule("Inbound", priority, "Deny") for priority in (4096, 200))
    assert decides(last | {"priority": 4096.0}, first | {"priority": 200.0}) == "Inbound-200"


def test_a_rule_about_a_virtual_network_without_addresses_is_left_out() -> None:
    read = Nsg.read("nsg", {}, [HEAD], [])
    assert [rule.name for rule in read.inbound] == [
        "AllowAzureLoadBalancerInBound",
        "DenyAllInBound",
    ]


# Several NSGs


def test_a_packet_passes_the_senders_nsg_then_the_receivers() -> None:
    packet = Packet("tcp", WORKER, 50000, HEAD, 22)
    nsgs = [nsg(name="head"), nsg(name="workers", member=WORKER)]
    assert [decision.nsg for decision in decisions(packet, nsgs)] == ["workers", "head"]


def test_a_machine_behind_two_nsgs_needs_both() -> None:
    allow, deny = (declared_rule("Inbound", 100, access) for access in ("Allow", "Deny"))
    subnet, interface = nsg(allow, name="subnet"), nsg(deny, name="interface")
    assert open_ports([subnet], STRANGER, HEAD) == set(range(65536))
    assert open_ports([subnet, interface], STRANGER, HEAD) == set()


def test_a_denial_is_the_last_decision() -> None:
    deny = declared_rule("Outbound", 100, "Deny")
    nsgs = [nsg(deny, name="workers", member=WORKER), nsg(name="head")]
    packet = Packet("tcp", WORKER, 50000, HEAD, 22)
    assert list(decisions(packet, nsgs)) == [Decision("workers", "Outbound-100", False)]


def test_open_ports_are_those_that_a_packet_reaches() -> None:
    rules = [
        declared_rule("Inbound", 100, "Deny", destinationPortRange="23"),
        declared_rule("Inbound", 200, "Allow", destinationPortRanges=["22-24", "65535"]),
        declared_rule("Inbound", 300, "Deny"),
    ]
    assert open_ports([nsg(*rules)], STRANGER, HEAD) == {22, 24, 65535}
    assert open_ports([nsg(*rules)], STRANGER, HEAD, "icmp") == set()


# Refused rules


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
    declared = declared_rule("Inbound", 100, "Allow") | {property_: value}
    with pytest.raises(UnsupportedRuleError) as error:
        nsg(declared)
    message = str(error.value)
    assert message.startswith(f"rule {declared['name']}: {property_} {value!r}: supported is ")
    assert supported in message.partition("supported is ")[2]


def test_a_rule_declares_addresses_and_ports_in_the_singular_or_in_the_plural() -> None:
    both = declared_rule("Inbound", 100, "Allow") | {"sourceAddressPrefixes": ["10.0.0.0/8"]}
    neither = declared_rule("Inbound", 100, "Allow") | {"destinationPortRange": None}
    for declared in (both, neither):
        with pytest.raises(UnsupportedRuleError, match="one of them"):
            nsg(declared)


def test_icmp_has_no_ports() -> None:
    with pytest.raises(UnsupportedRuleError, match="Icmp with the ports"):
        nsg(declared_rule("Inbound", 100, "Allow", protocol="Icmp", destinationPortRange="22"))


def test_two_rules_of_a_direction_do_not_share_a_priority() -> None:
    other = declared_rule("Inbound", 100, "Deny", name="other")
    nsg(declared_rule("Outbound", 100, "Allow"), other)
    with pytest.raises(UnsupportedRuleError, match="rule other: priority 100"):
        nsg(declared_rule("Inbound", 100, "Allow"), other)


def test_the_projects_own_nsgs_are_supported() -> None:
    for nsg in declare_stack().all("NetworkSecurityGroup"):
        read = Nsg.read(nsg.name, nsg.inputs, [HEAD], SPACE)
        assert "deny-all-else" in [rule.name for rule in read.inbound]


@pytest.mark.parametrize(
    ("config", "vnet"), [({}, "10.42.0.0/16"), (EXISTING_SUBNETS, "172.16.0.0/16")]
)
def test_the_tag_virtual_network_is_the_one_that_the_machines_are_in(
    config: dict[str, str], vnet: str
) -> None:
    applied = applied_nsgs(declare_stack(**config).azure)
    rules = [rule for nsg in applied for rule in nsg.inbound if rule.name == "AllowVnetInBound"]
    assert [rule.sources for rule in rules] == [(IPv4Network(vnet),)] * 2
