"""`volley dashboard`: the cluster's MLflow, Ray's dashboard and TensorBoard on this loopback.

The tunnel is a connection without a shell. When it is lost, it is reopened to the stack's current
head: a replaced head is another VM under the same address. TensorBoard runs on the head only while
the tunnel is open.
"""

import argparse
import random
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
from volley.head import VOLLEY_HEAD, error_of
from volley.ports import LOOPBACK, answers, check_port, has_desktop, listens
from volley.sleeping_head import why_unreachable
from volley.ssh import LOST, Connection, UnreachableError, connect_error
from volley.stack import Outputs, Stack

TENSORBOARD = "tensorboard"
PORT_OPTIONS = {"mlflow": "--port", "dashboard": "--ray-port", TENSORBOARD: "--tensorboard"}
"""Port options of the pages, by their stack output; TensorBoard has none."""
FAR_PORTS = range(20_000, 30_000)
"""Where TensorBoard may listen on the head: each laptop starts its own."""
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
    ports = {
        "mlflow": options.port,
        "dashboard": options.ray_port,
        TENSORBOARD: options.tensorboard,
    }
    outputs = stack.outputs()
    if options.tensorboard:
        print("Starting TensorBoard on the head ...", flush=True)
    try:
        with _tunnel(outputs, ports) as process:
            page = _show(outputs, pages(outputs, ports))
            if not options.no_browser and has_desktop():
                webbrowser.open(page)
            process.wait()
    except UnreachableError as error:
        raise why_unreachable(stack, outputs, error) from None
    while True:
        print("The connection to the head was lost. Connecting again ...", flush=True)
        _wait_for_head(stack, ports)


def pages(outputs: Outputs, ports: Mapping[str, int | None]) -> list[Page]:
    """Returns the pages that are on the head's loopback.

    Args:
        ports: Ports of this machine, by the keys of PORT_OPTIONS; None uses the head's, or shows no
            TensorBoard.
    """
    addresses = {name: urlsplit(str(outputs.values.get(name, ""))) for name in PORT_OPTIONS}
    shown = [
        Page(name, address.port, ports.get(name) or address.port)
        for name, address in addresses.items()
        if address.hostname == LOOPBACK and address.port
    ]
    if port := ports.get(TENSORBOARD):
        shown.append(Page(TENSORBOARD, random.choice(FAR_PORTS), port))
    return shown


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
    boards = [str(page.far_port) for page in shown if page.output == TENSORBOARD]
    words = [*VOLLEY_HEAD, "tensorboard", "--port", *boards] if boards else []
    command = Connection(outputs).tunnel({page.port: page.far_port for page in shown}, words)
    with (
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
        # If this process is killed, the pipe to stdin closes, and TensorBoard ends.
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr) as process,
    ):
        try:
            while not all(_is_shown(page) for page in shown):
                if process.poll() is not None:
                    stdout.seek(0)
                    stderr.seek(0)
                    if process.returncode == LOST:
                        raise connect_error(stderr.read().decode(errors="replace"), outputs)
                    raise error_of(process.returncode, stdout.read(), stderr.read())
                time.sleep(POLL_S)
            yield process
        finally:
            process.terminate()


def _is_shown(page: Page) -> bool:
    if page.output == TENSORBOARD:  # It has just been started.
        return answers(f"http://{LOOPBACK}:{page.port}")
    return listens(page.port)


def _show(outputs: Outputs, shown: list[Page]) -> str:
    """Prints the addresses; returns the one to open: MLflow's charts, or TensorBoard."""
    values, by_output = outputs.values, {page.output: page for page in shown}
    charts, ray = str(values["mlflowCharts"]), str(values["dashboard"])
    charts = by_output["mlflow"].local(charts) if "mlflow" in by_output else charts
    ray = by_output["dashboard"].local(ray) if "dashboard" in by_output else ray
    print(f"MLflow           {charts}")
    print(f"Ray's dashboard  {ray}  (its token: {values['dashboardToken']})")
    if TENSORBOARD in by_output:
        charts = f"http://{LOOPBACK}:{by_output[TENSORBOARD].port}"
        print(f"TensorBoard      {charts}")
    print("Ctrl-C closes the tunnel; the cluster keeps running.", flush=True)
    return charts


def _end(*_: Any) -> None:
    raise SystemExit(128 + signal.SIGTERM)
