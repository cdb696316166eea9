"""`volley ui`: MLflow and Ray's dashboard on this machine's loopback, until Ctrl-C.

The tunnel is a connection without a shell. A lost one is opened again, to the head that the stack
has then: a head that was replaced is another VM under the same address.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any
from urllib.parse import urlsplit

from payload.errors import UserError
from volley.errors import refused
from volley.ssh import Connection, connect_error
from volley.stack import Outputs, Stack

PAGES = ("mlflow", "dashboard")
LOOPBACK = "127.0.0.1"
FIRST_PAUSE_S, LAST_PAUSE_S = 1.0, 15.0
POLL_S = 0.1


def ui(stack: Stack, browser: bool) -> int:
    """Keeps a tunnel open; an exception ends it.

    Raises:
        UserError: The first connection fails, or a port is taken.
    """
    signal.signal(signal.SIGTERM, _end)
    outputs = stack.outputs()
    with _tunnel(outputs) as process:
        _show(outputs)
        if browser and has_desktop():
            webbrowser.open(str(outputs.values["mlflowCharts"]))
        process.wait()
    while True:
        print("The connection to the head was lost. Connecting again ...", flush=True)
        outputs = _wait_for_head(stack)


def local_ports(outputs: Outputs) -> list[int]:
    """Returns the ports of the pages that are on the head's loopback."""
    addresses = [urlsplit(str(outputs.values.get(page, ""))) for page in PAGES]
    return [address.port for address in addresses if address.hostname == LOOPBACK and address.port]


def has_desktop(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a browser could be seen; never through a login over SSH."""
    if "SSH_CONNECTION" in environment:
        return False
    return sys.platform == "darwin" or bool(environment.keys() & {"DISPLAY", "WAYLAND_DISPLAY"})


def _wait_for_head(stack: Stack) -> Outputs:
    """Connects and stays connected; returns when that connection is lost.

    While `pulumi up` replaces the head, all kinds of errors come and end: each is said once.
    """
    pause, said = FIRST_PAUSE_S, ""
    while True:
        try:
            outputs = stack.outputs()
            with _tunnel(outputs) as process:
                print("Connected again.", flush=True)
                process.wait()
            return outputs
        except UserError as error:
            if str(error) != said:
                print(f"volley: {error}. Trying again until Ctrl-C.", file=sys.stderr, flush=True)
            said = str(error)
        time.sleep(pause)
        pause = min(2 * pause, LAST_PAUSE_S)


@contextmanager
def _tunnel(outputs: Outputs) -> Iterator[subprocess.Popen[bytes]]:
    """Opens a tunnel, and ends it with the block.

    Raises:
        UserError: The head cannot be reached, or a port is taken.
    """
    ports = local_ports(outputs)
    for port in ports:
        _check_free(port)
    with tempfile.TemporaryFile("w+") as stderr:
        process = subprocess.Popen(
            Connection(outputs).tunnel(ports), stdin=subprocess.DEVNULL, stderr=stderr
        )
        try:
            while not all(_listens(port) for port in ports):
                if process.poll() is not None:
                    raise connect_error(_text(stderr), outputs)
                time.sleep(POLL_S)
            yield process
        finally:
            process.terminate()
            process.wait()


def _show(outputs: Outputs) -> None:
    values = outputs.values
    print(f"MLflow           {values['mlflowCharts']}")
    print(f"Ray's dashboard  {values['dashboard']}  (its token: {values['dashboardToken']})")
    print("Ctrl-C closes the tunnel; the cluster works on.", flush=True)


def _check_free(port: int) -> None:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((LOOPBACK, port))
        except OSError:
            raise refused(
                f"{LOOPBACK}:{port} is taken on this machine",
                f"lsof -i :{port}, and end what it shows",
            ) from None


def _listens(port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(1)
        return tried.connect_ex((LOOPBACK, port)) == 0


def _text(file: IO[str]) -> str:
    file.seek(0)
    return file.read()


def _end(*_: Any) -> None:
    raise SystemExit(128 + signal.SIGTERM)
