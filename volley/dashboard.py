"""`volley dashboard`: the cluster's MLflow, Ray's dashboard and TensorBoard on this loopback.

When the tunnel is lost, it is reopened to the stack's current head: a replaced head is another VM
under the same address. TensorBoard runs on the head only while the tunnel is open.
"""

import argparse
import random
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from volley.head import VOLLEY_HEAD
from volley.ports import LOOPBACK, check_port, has_desktop
from volley.sleeping_head import AsleepError, why_unreachable
from volley.ssh import UnreachableError
from volley.stack import Outputs, Stack
from volley.tunnel import Served, Tunnel, connect_again, end_on_sigterm, tunnel

TENSORBOARD = "tensorboard"
PORT_OPTIONS = {"mlflow": "--port", "dashboard": "--ray-port", TENSORBOARD: "--tensorboard"}
"""Port options of the pages, by their stack output; TensorBoard has none."""
FAR_PORTS = range(20_000, 30_000)
"""Where TensorBoard may listen on the head: each laptop starts its own."""


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
    end_on_sigterm()
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
        why = why_unreachable(outputs, error)
        if isinstance(why, AsleepError):
            raise AsleepError(f"{why}, or volley ui --from-results for MLflow alone") from None
        raise why from None
    connect_again(lambda: _tunnel(stack.outputs(), ports))


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


def _tunnel(outputs: Outputs, ports: Mapping[str, int | None]) -> Tunnel:
    """Returns the tunnel to the pages.

    Raises:
        UserError: A port is in use.
    """
    shown = {page.output: page for page in pages(outputs, ports)}
    for output, page in shown.items():
        check_port(page.port, f"volley dashboard {PORT_OPTIONS[output]}")
    served = None
    if board := shown.get(TENSORBOARD):
        words = [*VOLLEY_HEAD, "tensorboard", "--port", str(board.far_port)]
        served = Served(words, board.port)
    return tunnel(outputs, {page.port: page.far_port for page in shown.values()}, served)


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
