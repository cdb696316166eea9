"""Finds addresses of the rehearsal that this machine already uses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv4Network

from rehearsal.paths import OWN_INTERFACE

LINK_LOCAL = IPv4Network("169.254.0.0/16")
"""Many desktops have a route to this whole network, which conflicts with nothing (RFC 3927)."""


@dataclass(frozen=True)
class HostNetwork:
    """Addresses that this machine uses."""

    network: IPv4Network
    use: str
    """`interface eth0`, `route 10.0.0.0/8 by tun0`."""


def host_networks(addresses: str, routes: str) -> list[HostNetwork]:
    """Reads what `ip -j addr` and `ip -j route show table all` print.

    Leaves out the rehearsal's own interfaces and routes for everything: the default route, and the
    two halves with which a VPN replaces it.
    """
    entries = {entry.network: entry for entry in _routes(routes)}
    # An interface says more than the route that the kernel makes for it.
    entries |= {entry.network: entry for entry in _interfaces(addresses)}
    return sorted(entries.values(), key=lambda entry: (entry.network, entry.use))


def package_servers(resolv_conf: str, resolved: str) -> list[HostNetwork]:
    """Reads resolv.conf(5) and what `getent ahostsv4` prints of the servers that have packages.

    They are reached by the default route, which does not show their addresses.
    """
    uses = {}
    for line in resolv_conf.splitlines():
        match line.split():
            case ["nameserver", address, *_] if ":" not in address:
                uses[IPv4Network(address)] = f"name server {address}"
    name = ""
    for line in resolved.splitlines():
        address, _, *names = line.split()
        name = names[0] if names else name
        uses[IPv4Network(address)] = f"{name} ({address})"
    return [HostNetwork(network, use) for network, use in uses.items()]


def find_conflicts(networks: Sequence[IPv4Network], host: Sequence[HostNetwork]) -> list[str]:
    """Returns a line for each overlap."""
    return [
        f"addresses {network} of the rehearsal: in use here by {used.use}; they must be free"
        for network in networks
        for used in host
        if network.overlaps(used.network)
    ]


def _interfaces(addresses: str) -> Iterator[HostNetwork]:
    for interface in json.loads(addresses):
        name = interface.get("ifname", "")
        if OWN_INTERFACE.fullmatch(name):
            continue
        for address in interface.get("addr_info", []):
            if address.get("family") == "inet":
                own = IPv4Interface(f"{address['local']}/{address['prefixlen']}")
                yield HostNetwork(own.network, f"interface {name} ({own})")


def _routes(routes: str) -> Iterator[HostNetwork]:
    for route in json.loads(routes):
        device = route.get("dev", "")
        if route["dst"] == "default" or OWN_INTERFACE.fullmatch(device):
            continue
        if route.get("type", "unicast") in ("local", "broadcast", "anycast", "multicast"):
            continue
        network = IPv4Network(route["dst"])
        if network.prefixlen > 1 and network != LINK_LOCAL:
            by = f" by {device}" if device else ""
            yield HostNetwork(network, f"route {network}{by}")
