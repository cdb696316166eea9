"""`python -m payload ui`: MLflow's web pages of the runs in a folder of results, on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import webbrowser
from contextlib import suppress
from pathlib import Path

import psutil

from payload.errors import UserError
from payload.tracking.mlflow_pages import UI_HOST, experiment_page, run_page
from payload.tracking.mlflow_run import (
    DATABASE,
    EXPERIMENT_NAME,
    PARENT,
    Tracking,
    mlflow_client,
)

START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 5.0


def serve_ui(results: Path, port: int, browser: bool) -> int:
    """Serves the embedded MLflow until Ctrl-C; prints the address of the newest run's charts.

    Args:
        browser: Open that address as well, where there is a desktop.

    Returns:
        The exit code of MLflow's server.

    Raises:
        UserError: No run exists yet, or the port is taken.
    """
    tracking = Tracking.embedded(results, "")
    if not (results / DATABASE).is_file():
        raise UserError(f"--results {results}: no {DATABASE} in it; train first (make train)")
    _check_free(port)
    server = f"http://{UI_HOST}:{port}"
    page = _newest_page(tracking.uri, server)
    command = [sys.executable, "-m", "mlflow", "ui", "--host", UI_HOST, "--port", str(port)]
    with subprocess.Popen(
        [*command, "--backend-store-uri", tracking.uri],
        # Its job runners, seven processes, are for evaluations of language models.
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
    ) as process:
        try:
            if _answers(server, process):
                print(f"\nCharts  {page}\nStop with Ctrl-C.\n", flush=True)
                if browser and _has_desktop():
                    webbrowser.open(page)
            return process.wait()
        except KeyboardInterrupt:
            _end(process)
            return 130


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((UI_HOST, port))
        except OSError as error:
            raise UserError(f"--port {port}: {error.strerror}; give another one") from None


def _newest_page(tracking_uri: str, server: str) -> str:
    """Returns the page of the run that started last.

    It is the experiment's page before the first run, and where the run is a trial of a search:
    that page has the curves of all trials.
    """
    client = mlflow_client(tracking_uri)
    experiment = client.get_experiment_by_name(EXPERIMENT_NAME)
    if experiment is None:
        return server
    runs = client.search_runs(
        [experiment.experiment_id], order_by=["attributes.start_time DESC"], max_results=1
    )
    if not runs or PARENT in runs[0].data.tags:
        return experiment_page(server, experiment.experiment_id)
    return run_page(server, experiment.experiment_id, runs[0].info.run_id)


def _answers(server: str, process: subprocess.Popen[bytes]) -> bool:
    """Waits until the server answers; False if it ended, or did not answer in time."""
    end = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(f"{server}/health", timeout=5).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
        else:
            return True
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a server and its workers; one that is just starting may miss uvicorn's signal."""
    below = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=END_TIMEOUT_S)
    process.kill()
    for worker in below:
        with suppress(psutil.NoSuchProcess):
            worker.kill()


def _has_desktop() -> bool:
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
