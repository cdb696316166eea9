"""A port for a server that a test starts."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

PORTS = range(20_000, 32_000)
"""Above the ports of Ray's workers and below the kernel's ephemeral ports: neither takes the port
before the server does."""
EVERY_ADDRESS = ""
"""For a server that listens at several addresses of this machine."""


def free_port(address: str = "127.0.0.1") -> int:
    """Returns a port that is free on the address, or on every address."""
    for port in random.sample(PORTS, 100):
        with suppress(OSError), socket.create_server((address, port)):
            return port
    raise AssertionError("100 ports are taken")
