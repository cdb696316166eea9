"""The host's tools that a rehearsal uses, and their apt packages."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from rehearsal.host_shell import CLEAN_ENVIRONMENT, run
from rehearsal.set_up.atomic import Report, timed

DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
TOOLS = {
    "systemd-nspawn": "systemd-container",
    "debootstrap": "debootstrap",
    DEBIAN_KEYRING: "debian-archive-keyring",
    "nft": "nftables",
    "ip": "iproute2",
    "openssl": "openssl",
    "npm": "npm",
    "ssh": "openssh-client",
    "unshare": "util-linux",
    "mount": "mount",
}
"""Each with its apt package, which has the same name in Debian and Ubuntu."""


def missing_tools(is_there: Callable[[str], bool]) -> list[str]:
    return [tool for tool in TOOLS if not is_there(tool)]


def tool_is_there(tool: str) -> bool:
    if tool.startswith("/"):
        return Path(tool).exists()
    # Other users do not have root's folders on their PATH.
    path = None if os.geteuid() == 0 else CLEAN_ENVIRONMENT["PATH"]
    return shutil.which(tool, path=path) is not None


def install_tools(report: Report) -> None:
    """Installs the apt packages of the tools that are missing on this host."""
    missing = {TOOLS[tool] for tool in missing_tools(tool_is_there)}
    if missing:
        with timed(f"apt-get install {' '.join(sorted(missing))}", report):
            run("apt-get", "update", "-qq", timeout_s=300)
            quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-qq", "--yes"]
            run(*quiet, "--no-install-recommends", *sorted(missing), timeout_s=900)
