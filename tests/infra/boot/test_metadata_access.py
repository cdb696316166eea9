"""Who reaches Azure's metadata service: real users and nftables, with a service on loopback."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from head.identity.mlflow_token import ADDRESS
from infra.boot.cloud_config import FILES
from tests.machine_users import SYSTEM_PYTHON, MachineUsers, machine_users, why_not

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]

METADATA, AGENT, TOKENS = ("169.254.169.254", 80), ("168.63.129.16", 80), ADDRESS
DNS = ("168.63.129.16", 53)
SERVERS = """
import selectors, socket
servers = selectors.DefaultSelector()
for address in {}:
    servers.register(socket.create_server(address), selectors.EVENT_READ)
print(flush=True)
while True:
    for server, _ in servers.select():
        server.fileobj.accept()[0].close()
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"
OTHERS = ("ray", "mlflow", "1000")
"""The last is a person's, who may become root."""


@pytest.fixture(scope="module")
def users() -> Iterator[MachineUsers]:
    with machine_users() as users:
        for address, _ in (METADATA, AGENT):
            users.do("ip", "address", "add", address, "dev", "lo")
        code = SERVERS.format((METADATA, AGENT, DNS, TOKENS))
        command = users.command("root", SYSTEM_PYTHON, "-c", code)
        with subprocess.Popen(command, stdout=subprocess.PIPE) as servers:
            assert servers.stdout is not None
            servers.stdout.readline()
            yield users
            servers.kill()


def reaches(users: MachineUsers, user: str, address: tuple[str, int], *before: str) -> bool:
    done = users.run(user, *before, SYSTEM_PYTHON, "-c", CONNECT, address[0], str(address[1]))
    assert done.returncode == 0 or "ConnectionRefusedError" in done.stderr, done.stderr
    return done.returncode == 0


def test_only_root_and_identity_reach_the_metadata_service(users: MachineUsers) -> None:
    assert reaches(users, "ray", METADATA), "without the rules, everybody does"
    rules = FILES / "common/etc/volley/metadata.nft"
    for _ in range(2):  # After each boot, and each time that the unit is tried again.
        users.do("nft", "--file", rules)
    assert [user for user in ("root", "identity") if not reaches(users, user, METADATA)] == []
    assert [user for user in OTHERS if reaches(users, user, METADATA)] == []
    own_root = ("unshare", "--user", "--map-root-user", "--mount")
    assert not reaches(users, "ray", METADATA, *own_root), "in a container"
    assert [user for user in ("identity", *OTHERS) if reaches(users, user, AGENT)] == []
    assert reaches(users, "root", AGENT)
    assert reaches(users, "ray", DNS)
    everybody = ("root", "identity", *OTHERS)
    assert [user for user in everybody if reaches(users, user, TOKENS)] == ["mlflow"]


def test_experiments_start_after_the_rules_and_not_without_them(tree: Path, role: str) -> None:
    units = tree / "etc/systemd/system"
    text = (units / "python-environment.service").read_text()
    # A failure of ExecStartPre= is the unit's.
    assert "\nExecStartPre=/usr/sbin/nft --file /etc/volley/metadata.nft\n" in text
    assert "\nRestart=on-failure\n" in text
    ray = (units / f"ray-{role}.service").read_text()
    assert "\nRequires=python-environment.service\nAfter=python-environment.service\n" in ray
    assert "nftables\n" in (tree / "etc/volley/apt-packages.txt").read_text()
