"""A private network with chosen addresses and names, which ends with the program in it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rehearsal.host_shell import run
from tests.project import ROOT

SET_UP = """
set -eu
hosts=$1 machine=$2 addresses=$3; shift 3
ip link set lo up
ip address add "$machine" dev lo
for address in $addresses; do
  ip address add "$address" dev lo
  # Otherwise the kernel takes the address itself for the caller's.
  ip route change local "$address" dev lo table local src "$machine"
done
mount --bind "$hosts" /etc/hosts
exec "$@"
"""


def run_python(
    code: str,
    *arguments: str | Path,
    machine: str,
    names: Mapping[str, str],
    addresses: Sequence[str],
    hosts: Path,
    timeout_s: float = 120,
) -> str:
    """Runs Python code of the project in such a network; returns its output.

    Args:
        code: The program; `arguments` are its sys.argv[1:].
        machine: The source address of its connections.
        names: Addresses by their names in /etc/hosts.
        addresses: Further addresses on which the code may listen.
        hosts: Where to write that /etc/hosts.

    Raises:
        CommandError: The code failed.
    """
    all_names = {"localhost": "127.0.0.1", **names}
    hosts.write_text("".join(f"{address} {name}\n" for name, address in all_names.items()))
    apart = ["unshare", "--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
    shell = ["env", f"PYTHONPATH={ROOT}", "sh", "-c", SET_UP, "sh"]
    network = [str(hosts), machine, " ".join(addresses)]
    program = [sys.executable, "-c", code, *map(str, arguments)]
    return run(*apart, *shell, *network, *program, timeout_s=timeout_s).stdout
