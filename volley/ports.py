"""Ports and the browser of this machine."""

import errno
import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping

from volley.errors import refused

LOOPBACK = "127.0.0.1"
UI_PORT = AIRPLAY = 5000
"""Port of MLflow's pages, here and on a head; macOS's AirPlay Receiver uses the same one."""
JUPYTER_PORT = 8888
TENSORBOARD_PORT = 6006


def check_port(port: int, option: str) -> None:
    """Raises UserError if a port of the loopback cannot be used.

    Args:
        option: The command with the option that sets another one.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            reason = "is in use" if in_use else f"cannot be used: {error.strerror}"
            user = " (on macOS by AirPlay Receiver)" if in_use and port == AIRPLAY else ""
            other = port + 1 if in_use else AIRPLAY + 1
            raise refused(f"port {port} {reason}{user}", f"{option} {other}") from None


def listens(port: int) -> bool:
    """Whether something listens on a port of the loopback."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((LOOPBACK, port)) == 0


def answers(page: str) -> bool:
    """Whether a web server answers at an address."""
    try:
        urllib.request.urlopen(page, timeout=5).close()
    except (urllib.error.URLError, OSError):
        return False
    return True


def has_desktop(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a browser could be seen; not in a login over SSH."""
    if "SSH_CONNECTION" in environment:
        return False
    return sys.platform == "darwin" or bool(environment.keys() & {"DISPLAY", "WAYLAND_DISPLAY"})
