"""The name servers of this host, for the machines and their base image."""

from __future__ import annotations

from pathlib import Path


def name_servers() -> Path:
    """Returns the host's resolv.conf(5); if that is a stub on loopback, the file behind it."""
    own, behind = Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf")
    return behind if "nameserver 127.0.0.53" in own.read_text() and behind.exists() else own
