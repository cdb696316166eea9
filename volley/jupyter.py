"""`volley jupyter`: JupyterLab on the head, through a tunnel to this machine's loopback.

On the head it is a systemd unit, head/units/jupyter.service.
"""

import argparse
import sys
import webbrowser
from dataclasses import dataclass
from typing import NoReturn

from payload.errors import printable
from volley.errors import as_typed, refused
from volley.head import Head
from volley.ports import LOOPBACK, check_port, has_desktop
from volley.stack import Stack
from volley.tunnel import EndedError, Tunnel, connect_again, end_on_sigterm, tunnel

UNIT = "jupyter.service"
LOGS = "volley logs --unit 'jupyter*'"


@dataclass(frozen=True)
class Server:
    """JupyterLab's server on the head."""

    port: int
    token: str
    """A new one for each start."""


def jupyter(options: argparse.Namespace) -> int:
    """Opens JupyterLab, or stops it.

    Raises:
        UserError: The head cannot be reached, JupyterLab does not start, or the port is in use.
    """
    head = Head(Stack(options.stack))
    return _stop(head) if options.stop else _open(head, options)


def _open(head: Head, options: argparse.Namespace) -> NoReturn:
    """Starts JupyterLab unless it is running, and keeps a tunnel open until Ctrl-C."""
    end_on_sigterm()
    check_port(options.port, "volley jupyter --port")
    server = _running(head) or _start(head)
    ports = {options.port: server.port}

    def opened_again() -> Tunnel:
        if _running(head) != server:
            raise EndedError("JupyterLab has ended on the head. Next: volley jupyter")
        check_port(options.port, "volley jupyter --port")
        return tunnel(head.outputs, ports)

    with tunnel(head.outputs, ports) as process:
        page = f"http://{LOOPBACK}:{options.port}/lab?token={server.token}"
        print(printable(f"JupyterLab  {page}"))
        print(as_typed("Ctrl-C closes the tunnel. To stop JupyterLab: volley jupyter --stop"))
        sys.stdout.flush()
        if not options.no_browser and has_desktop():
            webbrowser.open(page)
        process.wait()
    connect_again(opened_again)


def _running(head: Head) -> Server | None:
    """Returns the server; None if none runs, or it does not answer yet."""
    answer = head.ask("jupyter")
    return Server(answer["port"], answer["token"]) if answer["token"] else None


def _start(head: Head) -> Server:
    """Starts JupyterLab, also if another `volley jupyter` is starting it."""
    print("Starting JupyterLab on the head. The first start takes a minute to install it ...")
    sys.stdout.flush()
    _systemctl(head, "start")
    server = _running(head)
    if server is None:
        raise refused("JupyterLab has ended right after its start", LOGS)
    return server


def _stop(head: Head) -> int:
    was_running = _running(head) is not None
    _systemctl(head, "stop")
    print("JupyterLab has stopped." if was_running else "JupyterLab is not running.")
    return 0


def _systemctl(head: Head, verb: str) -> None:
    """Starts or stops the unit; returns when it answers or has ended."""
    if reason := head.systemctl(verb, UNIT):
        raise refused(f"JupyterLab did not {verb}: {reason}", LOGS)
