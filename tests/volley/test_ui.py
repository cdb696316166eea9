"""`volley ui` on a real server of MLflow, which shows the newest run's charts, or TensorBoard."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from payload.run.run_folder import RunFolder
from payload.tracking.event_files import EventFiles
from payload.tracking.mlflow_experiment import EXPERIMENT_NAME, PARENT
from payload.tracking.mlflow_run import Tracking, experiment_page, run_page
from payload.tracking.outbox import Outbox
from tests.free_port import free_port
from tests.mlflow_host import status_for
from tests.payload.command_line import wait_for
from volley.cli import main
from volley.ui import newest_page

pytestmark = pytest.mark.slow


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two runs, the second of them newer; MLflow was away when it ended."""
    client = MlflowClient(Tracking.embedded(tmp_path, "").uri)
    experiment = client.create_experiment(EXPERIMENT_NAME)
    for name, start in (("old", 1000), ("new", 2000)):
        run = client.create_run(experiment, start_time=start, run_name=name)
    folder = RunFolder(tmp_path / "runs/new")
    folder.path.mkdir(parents=True)
    folder.remember_mlflow_run(run.info.run_id, Tracking.embedded(tmp_path, "").uri)
    outbox = Outbox()
    outbox.end = "FINISHED", 3000
    outbox.write(folder.undelivered_file, None)
    return tmp_path


@contextmanager
def ui(results: Path, port: int, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "volley", "ui", "--results", str(results), *options]
    with subprocess.Popen(
        [*command, "--port", str(port), "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def states_after(ui: subprocess.Popen[str], number: signal.Signals, exit_code: int) -> set[str]:
    """Ends the command with a signal; returns the resulting states of its server's processes."""
    server = psutil.Process(ui.pid).children(recursive=True)
    assert server
    for process in server[1:] if number == signal.SIGINT else []:
        process.suspend()  # A suspended process no longer responds.
    ui.send_signal(number)
    assert ui.wait(timeout=30) == exit_code
    return {process.status() for process in server if process.is_running()}


def test_the_newest_runs_charts_are_named_until_ctrl_c(results: Path) -> None:
    port = free_port()
    with ui(results, port) as process:
        assert process.stdout is not None
        # MLflow's own messages must not appear between these lines.
        shown = (line for line in process.stdout if not line.startswith("MLflow has received "))
        assert [next(shown), next(shown)] == ["Starting MLflow ...\n", "\n"]
        name, page = next(shown).split()
        assert name == "Charts"
        client = MlflowClient(Tracking.embedded(results, "").uri)
        experiment = client.get_experiment_by_name(EXPERIMENT_NAME).experiment_id
        (newest,) = client.search_runs([experiment], "attributes.run_name = 'new'")
        assert page == (
            f"http://127.0.0.1:{port}/#/experiments/{experiment}/runs/{newest.info.run_id}"
            "/model-metrics?workflowType=machine_learning"
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
            assert answer.status == 200
        wait_for(lambda: client.get_run(newest.info.run_id).info.status == "FINISHED")
        # Of this machine, through a tunnel, and a web page whose name resolves to 127.0.0.1.
        for host in (f"127.0.0.1:{port}", "localhost:5001"):
            assert status_for(port, host) == 200
        for host in (f"evil.example:{port}", f"10.0.0.4:{port}"):
            assert status_for(port, host) == 403
        # A zombie counts as ended: not every container's init reaps it.
        assert states_after(process, signal.SIGINT, 130) <= {psutil.STATUS_ZOMBIE}


def test_a_terminated_ui_leaves_no_server(results: Path) -> None:
    with ui(results, free_port()) as process:
        assert process.stdout is not None
        next(line for line in process.stdout if line.startswith("Charts"))
        assert states_after(process, signal.SIGTERM, 143) <= {psutil.STATUS_ZOMBIE}


def test_tensorboard_shows_the_event_files_until_it_is_terminated(tmp_path: Path) -> None:
    run, port = tmp_path / "runs/first", free_port()
    EventFiles(run).log_metrics({"env_runners/episode_return_mean": 18.0}, 500)
    with ui(tmp_path, port, "--tensorboard") as process:
        assert process.stdout is not None
        charts = next(line for line in process.stdout if line.startswith("Charts"))
        page = charts.split()[1]
        assert page == f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{page}/data/plugin/scalars/tags", timeout=10) as answer:
            assert list(json.load(answer)["runs/first"]) == ["env_runners/episode_return_mean"]
        assert states_after(process, signal.SIGTERM, 143) <= {psutil.STATUS_ZOMBIE}


def test_after_a_search_the_curves_of_all_trials_are_shown(results: Path) -> None:
    uri = Tracking.embedded(results, "").uri
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name(EXPERIMENT_NAME).experiment_id
    client.create_run(experiment, tags={PARENT: "0" * 32})
    assert newest_page(uri, "http://server") == experiment_page("http://server", experiment)


def test_the_newest_run_may_be_in_an_experiment_of_its_own(results: Path) -> None:
    uri = Tracking.embedded(results, "").uri
    client = MlflowClient(uri)
    own = client.create_experiment("mine")
    run = client.create_run(own)
    assert newest_page(uri, "http://server") == run_page("http://server", own, run.info.run_id)


def refusal(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    capfd.readouterr()
    assert main(["ui", *arguments]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    return line


def test_results_without_a_run_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line = refusal(capfd, "--results", str(tmp_path))
    assert line.startswith(f"volley: --results {tmp_path}: no run there yet. Next: ")
    assert line.endswith("volley train")
    assert not list(tmp_path.iterdir())


def test_results_without_event_files_are_refused(
    results: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line = refusal(capfd, "--results", str(results), "--tensorboard")
    assert line.startswith(f"volley: --results {results}: no event files there. Next: ")
    assert line.endswith("volley train --tensorboard")


def test_a_port_that_is_taken_is_refused(results: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refusal(capfd, "--results", str(results), "--port", str(port))
    assert line.startswith(f"volley: port {port} is in use. Next: ")
    assert line.endswith(f"volley ui --port {port + 1}")
