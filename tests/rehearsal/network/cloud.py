"""A host with a bridge per subnet; each machine on a bridge is a network namespace."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rehearsal.host_shell import run
from tests.rehearsal.network_namespaces import BRIDGED, NetworkNamespace, ip, network_namespace


@dataclass(frozen=True)
class Cloud:
    """Machines on the bridges of a host."""

    host: NetworkNamespace
    bridges: Sequence[str]
    """The names of the host's interfaces, in the order of the subnets."""
    at: dict[str, NetworkNamespace]
    """The namespaces by address."""

    def apply(self, rules: str) -> None:
        """Loads rules, in nft's syntax, on the host."""
        with self.host.entered():
            run("nft", "-f", "-", text=rules)

    def is_open(self, source: str, target: str, port: int = 9) -> bool:
        """Returns whether a connection reaches a port, even if the port refuses it."""
        with self.socket(source) as client:
            client.settimeout(0.5)
            return client.connect_ex((target, port)) in (0, errno.ECONNREFUSED)

    def socket(self, address: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """Returns a socket bound to a free port of an address."""
        with self.at[address].entered():
            made = socket.socket(socket.AF_INET, kind)
        made.bind((address, 0))
        made.settimeout(5)
        return made


@contextmanager
def cloud(
    subnets: Mapping[str, Sequence[str]], platform: Sequence[str], host: str
) -> Iterator[Cloud]:
    """Makes a host with machines.

    Args:
        subnets: Machines by the host's address in their subnet; each subnet is a /24.
        platform: Further addresses of the host.
        host: The address by which the host is known in `at`.
    """
    with ExitStack() as stack:
        bridges = [f"bridge{place}" for place in range(len(subnets))]
        made = Cloud(stack.enter_context(network_namespace()), bridges, {})
        made.at[host] = made.host
        with made.host.entered():
            BRIDGED.write_text("1")
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
            ip("link set lo up", *(f"address add {address}/32 dev lo" for address in platform))
        for bridge, (gateway, machines) in zip(bridges, subnets.items(), strict=True):
            with made.host.entered():
                ip(f"link add {bridge} type bridge forward_delay 0", f"link set {bridge} up")
                ip(f"address add {gateway}/24 dev {bridge}")
            for address in machines:
                made.at[address] = stack.enter_context(network_namespace())
                with made.host.entered():
                    cable, netns = f"cable{len(made.at)}", made.at[address].path
                    ip(f"link add {cable} type veth peer name eth0 netns {netns}")
                    ip(f"link set {cable} master {bridge} up")
                with made.at[address].entered():
                    ip("link set eth0 up", f"address add {address}/24 dev eth0")
                    ip(f"route add default via {gateway}")
        yield made
