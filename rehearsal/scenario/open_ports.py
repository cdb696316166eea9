"""The act that compares the open ports between machines with the declared ones."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from rehearsal.addresses import ADMIN_ADDRESS, STRANGER_ADDRESS
from rehearsal.azure.network.nsg_evaluation import open_ports
from rehearsal.backend import Backend
from rehearsal.host_plan import plan
from rehearsal.machines.machine import all_machines
from rehearsal.network.bridges import INTERNET
from rehearsal.network.port_scan import scan_from
from rehearsal.scenario.outcomes import UnexpectedError


def ports_as_declared() -> str:
    """Scans all ports of each machine from each other machine and from the internet.

    Raises:
        UnexpectedError: A port is open and should be closed, or the other way round.
    """
    declared = plan(Backend().resources())
    wrong, tried = [], 0
    for source in _sources():
        for target in all_machines():
            inner = target.spec.address
            address = declared.public_addresses.get(target.name) if source.outside else inner
            if source.name == target.name or address is None:
                continue
            allowed = open_ports(declared.nsgs, source.address, inner)
            passed = scan_from(source.namespace, source.address, address).passed
            tried += 1
            for state, ports in (("open", passed - allowed), ("closed", allowed - {0} - passed)):
                if ports:
                    wrong.append(f"{source.name} to {target.name}: {state}: {_ranges(ports)}")
    if wrong:
        raise UnexpectedError("; ".join(wrong))
    return f"65,535 ports on {tried} ways, all as declared"


@dataclass(frozen=True)
class _Source:
    """A machine or a person who scans the ports."""

    name: str
    namespace: Path
    address: str
    outside: bool = False
    """It is on the internet."""


def _sources() -> Iterator[_Source]:
    for machine in all_machines():
        if machine.leader is None:
            raise UnexpectedError(f"{machine.name} does not run")
        namespace = Path(f"/proc/{machine.leader}/ns/net")
        yield _Source(machine.name, namespace, machine.spec.address)
    internet = Path("/run/netns") / INTERNET
    yield _Source("the administrator", internet, ADMIN_ADDRESS, outside=True)
    yield _Source("a stranger", internet, STRANGER_ADDRESS, outside=True)


def _ranges(ports: Set[int]) -> str:
    """Writes ports as numbers and ranges: 22, 8076-8077."""
    parts: list[list[int]] = []
    for port in sorted(ports):
        if parts and port == parts[-1][1] + 1:
            parts[-1][1] = port
        else:
            parts.append([port, port])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
