"""Checks whether this machine can run a rehearsal, before anything is made on it."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path

from rehearsal.host_paths import AZURITE, BASE, ENVIRONMENT, HOME, PREFIX, RUN
from rehearsal.host_shell import run
from rehearsal.machines.cgroup import Cgroup
from rehearsal.set_up.address_conflicts import find_conflicts, host_networks, package_servers
from rehearsal.set_up.package_sources import package_sources
from rehearsal.set_up.tools import TOOLS, missing_tools, tool_is_there

OLDEST = {"debian": (12,), "ubuntu": (24, 4)}
"""Their debootstrap and keyring know Debian 13, of which the machines are made."""
MIN_CPUS = 2
MIN_MEMORY_GIB = 7.25
"""What the kernel leaves of 8 GB (powers of ten)."""
DISK_GB = {BASE: 0.7, AZURITE: 0.7, ENVIRONMENT: 7.5, RUN: 2.0}
"""Measured, including temporary files while they are made."""
RESOLV_CONF = Path("/etc/resolv.conf")
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


def problems(networks: Sequence[IPv4Network]) -> list[str]:
    """Returns a line for each reason why this machine cannot rehearse with these addresses."""
    root = os.geteuid() == 0
    tools = missing_tools(tool_is_there)
    absent = [path for path in DISK_GB if path == RUN or not path.exists()]
    lines = [
        *root_problems(os.geteuid()),
        *machine_problems(platform.machine(), platform.freedesktop_os_release()),
        *tool_problems(tools),
        *cpu_problems(len(os.sched_getaffinity(0))),
        *memory_problems(Path("/proc/meminfo").read_text()),
        *disk_problems(_existing(HOME), shutil.disk_usage(_existing(HOME)).free, absent),
    ]
    if root and not {"unshare", "mount", "ip", "nft"} & set(tools):
        lines += _all_kernel_problems()
    if "ip" not in tools:
        addresses = run("ip", "-4", "-j", "addr").stdout
        routes = run("ip", "-4", "-j", "route", "show", "table", "all").stdout
        lines += find_conflicts(networks, host_networks(addresses, routes))
    servers = package_sources().servers if shutil.which("apt-get") else ()
    resolv_conf = RESOLV_CONF.read_text() if RESOLV_CONF.exists() else ""
    lines += find_conflicts(networks, package_servers(resolv_conf, _resolved(servers)))
    return lines


def root_problems(user_id: int) -> Iterator[str]:
    if user_id != 0:
        yield _line("user", f"id {user_id}", "root is needed", "sudo")


def machine_problems(architecture: str, os_release: Mapping[str, str]) -> Iterator[str]:
    """Checks os-release(5); Debian's testing has no version and is newer than all that have one."""
    if architecture != "x86_64":
        needed = "x86_64 is needed, for which requirements/machine.txt is pinned"
        yield _line("processor", architecture, needed)
    name = os_release.get("PRETTY_NAME", os_release.get("ID", "unknown"))
    oldest = OLDEST.get(os_release.get("ID", ""))
    version = tuple(int(n) for n in re.findall(r"\d+", os_release.get("VERSION_ID", "")))
    if oldest is None or (version and version < oldest):
        yield _line("Linux distribution", name, "Debian 12 or Ubuntu 24.04, or newer, is needed")


def tool_problems(missing: Collection[str]) -> Iterator[str]:
    if missing:
        packages = " ".join(sorted({TOOLS[tool] for tool in missing}))
        yield _line("tools", f"no {', '.join(missing)}", "", f"apt-get install --yes {packages}")


def cpu_problems(cpus: int) -> Iterator[str]:
    if cpus < MIN_CPUS:
        yield _line("CPU cores", cpus, f"at least {MIN_CPUS} are needed")


def memory_problems(meminfo: str) -> Iterator[str]:
    """Checks /proc/meminfo, whose kB are 1,024 bytes."""
    (kib,) = re.findall(r"^MemTotal: +(\d+) kB$", meminfo, re.MULTILINE)
    gib = int(kib) / 2**20
    if gib < MIN_MEMORY_GIB:
        yield _line("memory", f"{gib:.1f} GiB", "8 GB are needed")


def disk_problems(folder: Path, free: int, absent: Collection[Path]) -> Iterator[str]:
    """Compares the free bytes in `folder` with the size of what is still to be made there."""
    needed = sum(DISK_GB[path] for path in absent)
    if free < needed * 1e9:
        parts = " + ".join(f"{path.name} {DISK_GB[path]:g}" for path in absent)
        wanted = f"{needed:.1f} GB are needed ({parts})"
        yield _line(f"free disk in {folder}", f"{free / 1e9:.1f} GB", wanted)


def kernel_problems(what: str, error: str, needed: str, cure: str = "") -> Iterator[str]:
    """Yields a line for the `error` of a trial in separate namespaces; none after a success."""
    if error:
        yield _line(what, " ".join(error.split())[-200:], needed, cure)


def _line(what: str, value: object, needed: str, cure: str = "") -> str:
    return "; ".join([f"{what}: {value}", *filter(None, [needed, cure and f"cure: {cure}"])])


def _all_kernel_problems() -> Iterator[str]:
    """Tries what a rehearsal does: a list of the kernel's features would only promise it."""
    where = _existing(HOME)
    needed = "a kernel with overlayfs, and a file system that can be below one, are needed"
    yield from kernel_problems(
        f"overlay mount in {where}", check_overlay(where), needed, "modprobe overlay"
    )
    needed = "a kernel with network namespaces, bridge, veth and nf_tables is needed"
    yield from kernel_problems("network", check_network(), needed)
    needed = "the kernel module br_netfilter is needed"
    yield from kernel_problems("bridge filter", check_bridge_filter(), needed)
    yield from kernel_problems("cgroups", check_cgroup(), "cgroups that root can make are needed")


def _resolved(names: Collection[str]) -> str:
    """Returns getent's output; empty if no name server answers soon."""
    if not names:
        return ""
    try:
        return run("getent", "ahostsv4", *names, timeout_s=5, check=False).stdout
    except subprocess.TimeoutExpired:
        return ""


def _existing(path: Path) -> Path:
    """Returns the folder itself, or the nearest above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


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
