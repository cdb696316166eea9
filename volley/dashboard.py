"""`volley dashboard`: the cluster's MLflow and Ray's dashboard on this machine's loopback.

The tunnel is a connection without a shell. When it is lost, it is reopened to the stack's current
head: a replaced head is another VM under the same address.
"""

import argparse
import signal
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from payload.errors import UserError
from volley.errors import as_typed
from volley.ports import LOOPBACK, check_port, has_desktop, listens
from volley.sleeping_head import why_unreachable
from volley.ssh import Connection, UnreachableError, connect_error
from volley.stack import Outputs, Stack

PORT_OPTIONS = {"mlflow": "--port", "dashboard": "--ray-port"}
"""Port options of the pages, by their stack output."""
FIRST_PAUSE_S, LAST_PAUSE_S = 1.0, 15.0
POLL_S = 0.1


@dataclass(frozen=True)
class Page:
    """A page on the head's loopback, and where this machine shows it."""

    output: str
    far_port: int
    port: int

    def local(self, address: str) -> str:
        """Returns an address of the page as this machine shows it."""
        return address.replace(f"{LOOPBACK}:{self.far_port}", f"{LOOPBACK}:{self.port}", 1)


def dashboard(options: argparse.Namespace) -> int:
    """Keeps a tunnel open until Ctrl-C.

    Raises:
        UserError: The first connection fails, or a port is in use.
    """
    signal.signal(signal.SIGTERM, _end)
    stack = Stack(options.stack)
    ports = {"mlflow": options.port, "dashboard": options.ray_port}
    outputs = stack.outputs()
    try:
        with _tunnel(outputs, ports) as process:
            charts = _show(outputs, pages(outputs, ports))
            if not options.no_browser and has_desktop():
                webbrowser.open(charts)
            process.wait()
    except UnreachableError as error:
        raise why_unreachable(stack, outputs, error) from None
    while True:
        print("The connection to the head was lost. Connecting again ...", flush=True)
        _wait_for_head(stack, ports)


def pages(outputs: Outputs, ports: Mapping[str, int | None]) -> list[Page]:
    """Returns the pages that are on the head's loopback.

    Args:
        ports: Ports of this machine, by stack output; None uses the head's.
    """
    addresses = {name: urlsplit(str(outputs.values.get(name, ""))) for name in PORT_OPTIONS}
    return [
        Page(name, address.port, ports.get(name) or address.port)
        for name, address in addresses.items()
        if address.hostname == LOOPBACK and address.port
    ]


def _wait_for_head(stack: Stack, ports: Mapping[str, int | None]) -> None:
    """Connects and stays connected; returns when that connection is lost.

    While `pulumi up` replaces the head, errors of all kinds come and go: each is printed once.
    """
    pause, last = FIRST_PAUSE_S, ""
    while True:
        try:
            with _tunnel(stack.outputs(), ports) as process:
                print("Connected again.", flush=True)
                process.wait()
            return
        except UserError as error:
            if str(error) != last:
                text = as_typed(str(error)).rstrip(".")
                print(f"volley: {text}. Trying again until Ctrl-C.", file=sys.stderr, flush=True)
            last = str(error)
        time.sleep(pause)
        pause = min(2 * pause, LAST_PAUSE_S)


@contextmanager
def _tunnel(outputs: Outputs, ports: Mapping[str, int | None]) -> Iterator[subprocess.Popen[bytes]]:
    """Opens a tunnel, and closes it with the block.

    Raises:
        UserError: The head cannot be reached, or a port is in use.
    """
    shown = pages(outputs, ports)
    for page in shown:
        check_port(page.port, f"volley dashboard {PORT_OPTIONS[page.output]}")
    command = Connection(outputs).tunnel({page.port: page.far_port for page in shown})
    with tempfile.TemporaryFile("w+") as stderr:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr)
        try:
            while not all(listens(page.port) for page in shown):
                if process.poll() is not None:
                    stderr.seek(0)
                    raise connect_error(stderr.read(), outputs)
                time.sleep(POLL_S)
            yield process
        finally:
            process.terminate()
            process.wait()


def _show(outputs: Outputs, shown: list[Page]) -> str:
    """Prints the addresses; returns that of MLflow's charts."""
    values, by_output = outputs.values, {page.output: page for page in shown}
    charts, ray = str(values["mlflowCharts"]), str(values["dashboard"])
    charts = by_output["mlflow"].local(charts) if "mlflow" in by_output else charts
    ray = by_output["dashboard"].local(ray) if "dashboard" in by_output else ray
    print(f"MLflow           {charts}")
    print(f"Ray's dashboard  {ray}  (its token: {values['dashboardToken']})")
    print("Ctrl-C closes the tunnel; the cluster keeps running.", flush=True)
    return charts


def _end(*_: Any) -> None:
    raise SystemExit(128 + signal.SIGTERM)
