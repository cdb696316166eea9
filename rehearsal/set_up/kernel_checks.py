"""Tries what a rehearsal needs from the kernel; each check returns the error, or nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from rehearsal.host_shell import run
from rehearsal.machines.cgroup import Cgroup
from rehearsal.paths import PREFIX

BRIDGE_FILTER = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")

# They run in separate namespaces and leave nothing behind.
OVERLAY = """cd "$1" && mkdir lower upper work root
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work root"""
NETWORK = """ip link add name bridge0 type bridge
ip link add name cable0 type veth peer name cable1
nft 'table ip trial {
  chain forward { type filter hook forward priority 0; ct state established counter accept; }
  chain nat { type nat hook postrouting priority 100; masquerade; }
}'"""


def check_overlay(where: Path) -> str:
    """Mounts an overlay whose layers are on the disk of `where`."""
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}-trial-", dir=where) as folder:
        return _error_of("unshare", "--mount", "sh", "-ec", OVERLAY, "sh", folder)


def check_network() -> str:
    """Makes each kind of interface, and rules with connection tracking and NAT."""
    return _error_of("unshare", "--net", "sh", "-ec", NETWORK)


def check_bridge_filter() -> str:
    """Loads br_netfilter, which passes packets within a bridge to the rules."""
    if BRIDGE_FILTER.exists():
        return ""
    if shutil.which("modprobe") is None:
        return "no modprobe to load it (apt package kmod)"
    error = _error_of("modprobe", "br_netfilter")
    return error if error or BRIDGE_FILTER.exists() else f"no {BRIDGE_FILTER}"


def check_cgroup() -> str:
    """Makes a cgroup in every hierarchy."""
    trial = Cgroup(f"trial-{os.getpid()}")
    try:
        trial.make()
    except OSError as error:
        return str(error)
    finally:
        trial.remove()
        for path in trial.paths:
            with contextlib.suppress(OSError):
                path.parent.rmdir()
    return "" if trial.paths else "none is mounted in /sys/fs/cgroup"


def _error_of(*command: str) -> str:
    done = run(*command, check=False)
    return "" if done.returncode == 0 else done.stderr or done.stdout or f"exit {done.returncode}"
