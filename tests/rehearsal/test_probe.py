"""The probe finds what a network lets through: two machines on a bridge, each a namespace."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.rehearsal.probe import Reached, probe
from tests.rehearsal.shell import CommandError, run

SOURCE, TARGET = "10.77.0.1", "10.77.0.2"
PORTS = frozenset(range(1, 65536))
LISTENING = frozenset({22, 6379})
ALLOWED = frozenset({6379, 8076, *range(10100, 10200)})
ALLOW = "tcp dport { 6379, 8076, 10100-10199 } accept"
INTO_TARGET = f"ip saddr {SOURCE} ip daddr {TARGET}"


def missing() -> str:
    """What this machine lacks for these tests, in words; empty if nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "nft", "nsenter", "unshare"):
        if not shutil.which(tool):
            return f"{tool} is not installed"
    if run("unshare", "--net", "true", check=False).returncode != 0:
        return "network namespaces cannot be made here"
    if not Path("/proc/sys/net/bridge").exists():
        return "the kernel module br_netfilter is not loaded"
    return ""


LACKS = missing()
pytestmark = [pytest.mark.rehearsal, pytest.mark.skipif(bool(LACKS), reason=LACKS)]


@dataclass(frozen=True)
class Machines:
    """A process in each namespace."""

    network: int
    """Of the bridge."""
    source: int
    target: int

    def probe(self) -> Reached:
        return probe(file_of(self.source), SOURCE, TARGET)

    def network_rules(self, inbound: str) -> None:
        """Has the bridge judge what is new from source to target by `inbound`."""
        set_rules(self.network, "forward", inbound)


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    with ExitStack() as until_the_end:
        network, source = (until_the_end.enter_context(namespace()) for _ in range(2))
        target = until_the_end.enter_context(namespace(*LISTENING))
        ip(network, "link add bridge type bridge")
        ip(network, "link set bridge up")
        for name, pid, address in (("source", source, SOURCE), ("target", target, TARGET)):
            ip(network, f"link add {name} type veth peer name host0 netns {pid}")
            ip(network, f"link set {name} master bridge up")
            ip(pid, f"address add {address}/24 dev host0")
            ip(pid, "link set host0 up")
        yield Machines(network, source, target)


@pytest.fixture(autouse=True)
def no_rules(machines: Machines) -> None:
    for pid in (machines.network, machines.source):
        run("nsenter", f"--target={pid}", "--net", "nft", "flush", "ruleset")


def test_exactly_the_allowed_ports_are_found(machines: Machines) -> None:
    machines.network_rules(f"{ALLOW}; drop")
    found = machines.probe()
    assert found.passed == ALLOWED
    assert found.listening == {6379}


def test_without_rules_every_port_is_found(machines: Machines) -> None:
    found = machines.probe()
    assert found.passed == PORTS
    assert found.listening == LISTENING
    assert found.refused == PORTS - LISTENING


def test_none_is_found_when_all_is_dropped(machines: Machines) -> None:
    machines.network_rules("drop")
    assert machines.probe() == Reached(frozenset(), frozenset())


def test_a_rule_of_the_sender_s_own_host_counts_too(machines: Machines) -> None:
    set_rules(machines.source, "output", f"{ALLOW}; drop")
    assert machines.probe().passed == ALLOWED


def test_a_segment_that_was_lost_is_sent_again(machines: Machines) -> None:
    machines.network_rules(f"tcp dport != @asked add @asked {{ tcp dport }} drop; {ALLOW}; drop")
    assert machines.probe().passed == ALLOWED


def test_what_a_probe_leaves_behind_opens_nothing_for_the_next_one(machines: Machines) -> None:
    machines.network_rules(f"{ALLOW}; drop")
    before = machines.probe()
    machines.network_rules("tcp dport 22 accept; drop")
    assert before.passed == ALLOWED
    assert machines.probe().passed == {22}


def test_an_address_that_the_source_has_not_is_an_error(machines: Machines) -> None:
    with pytest.raises(CommandError, match="Cannot assign requested address"):
        probe(file_of(machines.source), "10.77.0.9", TARGET)


@contextmanager
def namespace(*listening: int) -> Iterator[int]:
    """A network namespace whose one process listens on ports; it ends when this process does."""
    program = (
        "import socket, sys\n"
        "servers = [socket.create_server(('', int(port))) for port in sys.argv[1:]]\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = ["unshare", "--net", sys.executable, "-c", program, *map(str, listening)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield process.pid


def file_of(pid: int) -> Path:
    return Path(f"/proc/{pid}/ns/net")


def ip(namespace_pid: int, command: str) -> None:
    run("nsenter", f"--target={namespace_pid}", "--net", "ip", *command.split())


def set_rules(namespace_pid: int, hook: str, inbound: str) -> None:
    """Puts the rules `inbound`, separated by semicolons, where an NSG has them; in one step."""
    ruleset = f"""
        flush ruleset
        table ip nsg {{
            set asked {{ type inet_service; size 65535; flags dynamic; }}
            chain {hook} {{
                type filter hook {hook} priority filter; policy accept;
                ct state established,related accept
                {INTO_TARGET} jump inbound
            }}
            chain inbound {{
                {inbound}
            }}
        }}
    """
    run("nsenter", f"--target={namespace_pid}", "--net", "nft", "-f", "-", text=ruleset)
