"""The tunnel shows the head's pages on loopback, and comes back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from payload.tracking.event_files import EventFiles
from tests.free_port import free_port
from tests.volley.conftest import Laptop, outputs_of
from tests.volley.far_head import SERVE, FarHead, read, sharing_network, tunnel
from tests.volley.head import listens, until
from volley.dashboard import Page, pages
from volley.ports import has_desktop
from volley.stack import Outputs


@pytest.fixture
def tunnelled(laptop: Laptop, far_head: FarHead) -> Laptop:
    laptop.outputs(**pages_of(far_head, "vm-1"))
    return laptop


def pages_of(head: FarHead, vm_id: str) -> dict[str, str]:
    page = f"http://127.0.0.1:{head.port}"
    others = {"mlflow": page, "mlflowCharts": f"{page}/#/charts", "dashboard": page}
    return outputs_of(head, vm_id, dashboardToken="ssh head sudo cat token", **others)


@pytest.mark.slow
def test_dashboard_shows_the_heads_pages_until_ctrl_c(tunnelled: Laptop, far_head: FarHead) -> None:
    with tunnel(tunnelled, "dashboard") as (process, output):
        assert f"MLflow           http://127.0.0.1:{far_head.port}/#/charts" in output.text
        assert read(far_head.port) == b"a page of the head"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        until(lambda: "The tunnel is closed; the cluster keeps running." in output.text)
    assert not listens(far_head.port)


@pytest.mark.slow
def test_dashboard_connects_again_after_a_loss(tunnelled: Laptop, far_head: FarHead) -> None:
    with tunnel(tunnelled, "dashboard") as (_, output):
        far_head.stop()
        until(lambda: "Trying again until Ctrl-C" in output.text)
        far_head.start()
        until(lambda: "Connected again." in output.text)
        assert read(far_head.port) == b"a page of the head"


@pytest.mark.slow
def test_dashboard_survives_a_replaced_head(tunnelled: Laptop, far_head: FarHead) -> None:
    with tunnel(tunnelled, "dashboard") as (_, output):
        far_head.stop()
        far_head.new_host_key()
        far_head.start()
        # `pulumi up` has not ended.
        until(lambda: "the host key differs from the one that the stack has" in output.text)
        tunnelled.outputs(**pages_of(far_head, "vm-2"))
        until(lambda: "Connected again." in output.text)
        assert read(far_head.port) == b"a page of the head"


@pytest.mark.slow
def test_tensorboard_runs_on_the_head_while_the_tunnel_is_open(
    tunnelled: Laptop, far_head: FarHead
) -> None:
    run = far_head.root / "var/lib/volley/runs/pong-key/runs/first"
    EventFiles(run).log_metrics({"env_runners/episode_return_mean": 18.0}, 500)
    port = free_port()
    assert not sharing_network(far_head.pages.pid)
    with tunnel(tunnelled, "dashboard", "--tensorboard", str(port)) as (process, output):
        assert f"TensorBoard      http://127.0.0.1:{port}\n" in output.text
        runs = json.loads(read(port, "data/plugin/scalars/tags"))
        assert list(runs) == ["pong-key/runs/first"]
        assert sharing_network(far_head.pages.pid)
        process.kill()  # It cannot tidy up.
        until(lambda: not sharing_network(far_head.pages.pid))
    assert not listens(port)


@pytest.mark.slow
def test_a_tensorboard_that_fails_is_told(tunnelled: Laptop, far_head: FarHead) -> None:
    python = far_head.root / "opt/volley/venv/bin/python"
    python.write_text("#!/bin/sh\necho no TensorBoard here >&2\nexit 1\n")
    said = tunnelled.volley("dashboard", "--no-browser", "--tensorboard", str(free_port()), code=2)
    assert said.startswith("TensorBoard has ended on the head: no TensorBoard here. Next: ")
    assert said.endswith("volley dashboard --tensorboard")


@pytest.mark.slow
def test_a_taken_port_is_told(tunnelled: Laptop, far_head: FarHead) -> None:
    serving = [sys.executable, "-c", SERVE, str(far_head.port)]
    with subprocess.Popen(serving, stdout=subprocess.DEVNULL) as other:
        until(lambda: listens(far_head.port))
        said = tunnelled.volley("dashboard", code=2)
        other.kill()
    assert said.startswith(f"port {far_head.port} is in use. Next: ")
    assert said.endswith(f"volley dashboard --port {far_head.port + 1}")


@pytest.mark.slow
def test_pages_are_shown_on_the_given_ports(tunnelled: Laptop) -> None:
    port, ray_port = free_port(), free_port()
    options = ("--port", str(port), "--ray-port", str(ray_port))
    with tunnel(tunnelled, "dashboard", *options) as (_, output):
        assert f"MLflow           http://127.0.0.1:{port}/#/charts" in output.text
        assert f"Ray's dashboard  http://127.0.0.1:{ray_port}" in output.text
        assert read(port) == read(ray_port) == b"a page of the head"


def test_an_mlflow_elsewhere_needs_no_tunnel() -> None:
    values = {"mlflow": "https://mlflow.example.com:443", "dashboard": "http://127.0.0.1:8265"}
    assert pages(Outputs(values), {}) == [Page("dashboard", 8265, 8265)]


def test_no_browser_is_opened_without_a_desktop() -> None:
    assert not has_desktop({"SSH_CONNECTION": "1.2.3.4", "DISPLAY": ":0"})
    assert has_desktop({"DISPLAY": ":0"})
