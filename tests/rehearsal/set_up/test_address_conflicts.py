"""The host check reports addresses that this machine already uses, and what uses them."""

from __future__ import annotations

import json
from ipaddress import IPv4Interface, IPv4Network

import pytest

from rehearsal.host_paths import PREFIX
from rehearsal.set_up.address_conflicts import (
    HostNetwork,
    find_conflicts,
    host_networks,
    package_servers,
)


def interfaces(**addresses: str) -> str:
    """Returns the output of `ip -j addr`; each keyword is an interface."""
    return json.dumps(
        [
            {
                "ifname": name,
                "addr_info": [
                    {
                        "family": "inet",
                        "local": str(IPv4Interface(address).ip),
                        "prefixlen": IPv4Interface(address).network.prefixlen,
                    }
                ],
            }
            for name, address in addresses.items()
        ]
    )


COLLIDING = {
    "an interface": (interfaces(eth1="10.42.0.5/24"), [], "interface eth1 (10.42.0.5/24)"),
    "one whose name is like ours": (
        interfaces(vrf1="10.42.0.5/24"),
        [],
        "interface vrf1 (10.42.0.5/24)",
    ),
    "a wider route": ("[]", [{"dst": "10.0.0.0/8", "dev": "tun0"}], "route 10.0.0.0/8 by tun0"),
    "a route to one host": (
        "[]",
        [{"dst": "10.42.0.9", "dev": "wg0"}],
        "route 10.42.0.9/32 by wg0",
    ),
    "a blackhole": ("[]", [{"type": "blackhole", "dst": "10.42.0.0/16"}], "route 10.42.0.0/16"),
}
FREE = {
    "another network": (interfaces(eth0="10.41.0.5/24"), [{"dst": "10.43.0.0/16", "dev": "tun0"}]),
    "the default route": ("[]", [{"dst": "default", "gateway": "192.0.2.1", "dev": "eth0"}]),
    "a VPN's two halves": ("[]", [{"dst": "0.0.0.0/1", "dev": "tun0"}]),
    "a left-over of a rehearsal": (
        interfaces(**{f"{PREFIX}0": "10.42.0.1/24"}),
        [{"dst": "10.42.0.0/24", "dev": f"{PREFIX}0"}],
    ),
    "a local route": ("[]", [{"type": "local", "dst": "10.42.0.5", "dev": "eth0"}]),
}


@pytest.mark.parametrize("case", COLLIDING)
def test_addresses_in_use_are_told_with_their_interface_or_route(case: str) -> None:
    addresses, routes, use = COLLIDING[case]
    conflicts = find_conflicts(
        [IPv4Network("10.42.0.0/24")], host_networks(addresses, json.dumps(routes))
    )
    assert conflicts == [
        f"addresses 10.42.0.0/24 of the rehearsal: in use here by {use}; they must be free"
    ]


@pytest.mark.parametrize("case", FREE)
def test_addresses_that_are_free_are_not_told(case: str) -> None:
    addresses, routes = FREE[case]
    networks = [IPv4Network("10.42.0.0/24"), IPv4Network("169.254.169.254/32")]
    assert find_conflicts(networks, host_networks(addresses, json.dumps(routes))) == []


def test_the_metadata_address_collides_with_a_cloud_host_but_not_with_link_local() -> None:
    link_local = {"dst": "169.254.0.0/16", "dev": "eth0", "scope": "link"}
    cloud = {"dst": "169.254.169.254", "gateway": "10.0.0.1", "dev": "eth0"}
    metadata = [IPv4Network("169.254.169.254/32")]
    assert find_conflicts(metadata, host_networks("[]", json.dumps([link_local]))) == []
    assert len(find_conflicts(metadata, host_networks("[]", json.dumps([link_local, cloud])))) == 1


def test_an_interface_and_its_own_route_are_told_once() -> None:
    route = json.dumps([{"dst": "10.42.0.0/24", "dev": "eth1", "protocol": "kernel"}])
    assert host_networks(interfaces(eth1="10.42.0.5/24"), route) == [
        HostNetwork(IPv4Network("10.42.0.0/24"), "interface eth1 (10.42.0.5/24)")
    ]


def test_servers_that_machines_get_packages_from_are_told_by_name() -> None:
    resolved = (
        "203.0.113.9  STREAM mirror.example\n203.0.113.9  DGRAM  \n198.51.100.1 STREAM other\n"
    )
    resolv_conf = "search example\nnameserver 2001:db8::1\nnameserver 203.0.113.53\n"
    conflicts = find_conflicts(
        [IPv4Network("203.0.113.0/24")], package_servers(resolv_conf, resolved)
    )
    assert [line.partition("in use here by ")[2] for line in conflicts] == [
        "name server 203.0.113.53; they must be free",
        "mirror.example (203.0.113.9); they must be free",
    ]
