"""Before making anything, the checks print one line for each obstacle to a rehearsal."""

from __future__ import annotations

import os
import shutil
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from rehearsal.host_paths import HOME, PREFIX, RUN
from rehearsal.set_up.host_checks import (
    check_network,
    cpu_problems,
    disk_problems,
    kernel_problems,
    machine_problems,
    memory_problems,
    problems,
    root_problems,
    tool_problems,
)
from rehearsal.set_up.tools import missing_tools

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to try the kernel")

BOOKWORM = {"ID": "debian", "VERSION_ID": "12", "PRETTY_NAME": "Debian GNU/Linux 12 (bookworm)"}
FOCAL = {"ID": "ubuntu", "VERSION_ID": "20.04", "PRETTY_NAME": "Ubuntu 20.04.6 LTS"}
FEDORA = {"ID": "fedora", "VERSION_ID": "42", "PRETTY_NAME": "Fedora Linux 42"}

BAD: dict[str, tuple[list[str], str]] = {
    "not root": (list(root_problems(1000)), "user: id 1000; root is needed; cure: sudo"),
    "an old Debian": (
        list(machine_problems("x86_64", {"ID": "debian", "VERSION_ID": "11"})),
        "Linux distribution: debian; Debian 12 or Ubuntu 24.04, or newer, is needed",
    ),
    "an old Ubuntu": (
        list(machine_problems("x86_64", FOCAL)),
        "Linux distribution: Ubuntu 20.04.6 LTS; Debian 12 or Ubuntu 24.04, or newer, is needed",
    ),
    "another distribution": (
        list(machine_problems("x86_64", FEDORA)),
        "Linux distribution: Fedora Linux 42; Debian 12 or Ubuntu 24.04, or newer, is needed",
    ),
    "another processor": (
        list(machine_problems("aarch64", BOOKWORM)),
        "processor: aarch64; x86_64 is needed, for which requirements/machine.txt is pinned",
    ),
    "missing tools": (
        list(tool_problems(["systemd-nspawn", "nft"])),
        "tools: no systemd-nspawn, nft; cure: apt-get install --yes nftables systemd-container",
    ),
    "one core": (list(cpu_problems(1)), "CPU cores: 1; at least 2 are needed"),
    "4 GB": (list(memory_problems("MemTotal:  4017416 kB\n")), "memory: 3.8 GiB; 8 GB are needed"),
    "a full disk": (
        list(disk_problems(Path("/var/lib"), 1_300_000_000, [RUN])),
        "free disk in /var/lib: 1.3 GB; 2.0 GB are needed (run 2)",
    ),
    "no overlayfs": (
        list(kernel_problems("overlay mount in /var/lib", "mount: unknown\n type", "x", "y")),
        "overlay mount in /var/lib: mount: unknown type; x; cure: y",
    ),
}

GOOD: dict[str, list[str]] = {
    "root": list(root_problems(0)),
    "Debian 12": list(machine_problems("x86_64", BOOKWORM)),
    "Debian testing, without a version": list(machine_problems("x86_64", {"ID": "debian"})),
    "Ubuntu 24.04": list(machine_problems("x86_64", {"ID": "ubuntu", "VERSION_ID": "24.04"})),
    "all tools": list(tool_problems([])),
    "two cores": list(cpu_problems(2)),
    "8 GB with the kernel's share off": list(
        memory_problems("MemTotal:  7857344 kB\nMemFree: 1 kB\n")
    ),
    "enough disk": list(disk_problems(Path("/var/lib"), 2_000_000_001, [RUN])),
    "a check without complaint": list(kernel_problems("network", "", "x is needed")),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_machine_is_told_in_one_line(case: str) -> None:
    lines, line = BAD[case]
    assert lines == [line]


@pytest.mark.parametrize("case", GOOD)
def test_a_good_machine_is_told_nothing(case: str) -> None:
    assert GOOD[case] == []


def test_a_tool_is_missed_only_where_it_is_not() -> None:
    assert missing_tools(lambda tool: tool != "nft") == ["nft"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ip") is None, reason="ip (iproute2) is not installed")
def test_all_that_is_wrong_with_this_machine_is_told_together() -> None:
    lines = problems([IPv4Network("127.0.0.0/24"), IPv4Network("127.1.0.0/24")])
    loopback = [line for line in lines if "interface lo (127.0.0.1/8)" in line]
    assert len(loopback) == 2
    assert ("user: id" in "".join(lines)) == (os.geteuid() != 0)
    assert not any("\n" in line for line in lines)


@pytest.mark.slow
@needs_root
@pytest.mark.skipif(shutil.which("nft") is None, reason="nft (nftables) is not installed")
def test_the_network_check_has_no_syntax_error() -> None:
    assert "syntax error" not in check_network()


@pytest.mark.slow
@needs_root
def test_looking_leaves_nothing_on_the_machine() -> None:
    problems([])
    links = subprocess.check_output(["ip", "-br", "link"], text=True)
    assert not {"bridge0", "cable0", "cable1"} & {line.split()[0] for line in links.splitlines()}
    assert f"{PREFIX}-trial-" not in Path("/proc/self/mountinfo").read_text()
    for folder in (*HOME.parents, HOME):
        assert list(folder.glob(f"{PREFIX}-trial-*")) == []
    assert list(Path("/sys/fs/cgroup").rglob(f"trial-{os.getpid()}")) == []
