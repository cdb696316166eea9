"""`volley ui`: MLflow's web pages of the runs in a folder of results, on loopback."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, NoReturn

from payload.errors import UserError
from payload.run.driver_lock import mark_dead_runs
from payload.tracking.mlflow_run import (
    DATABASE,
    EXPERIMENT_NAME,
    PARENT,
    Tracking,
    experiment_page,
    mlflow_client,
    run_page,
)
from volley.errors import refused
from volley.ports import LOOPBACK, check_port, has_desktop

START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 5.0
LAST_LINES = 20
"""Lines of the server's output that are printed if it fails."""


def ui(options: argparse.Namespace) -> NoReturn:
    """Serves the embedded MLflow until Ctrl-C; shows the charts of the newest run.

    Raises:
        UserError: No run exists yet, the port is in use, or MLflow's server fails.
    """
    results, port = options.results, options.port
    if not (results / DATABASE).is_file():
        raise refused(f"--results {results}: no run there yet", "volley train")
    check_port(port, "volley ui --port")
    for line in mark_dead_runs(results):
        print(line)
    uri, server = Tracking.embedded(results, "").uri, f"http://{LOOPBACK}:{port}"
    page = newest_page(uri, server)
    print("Starting MLflow ...", flush=True)
    with tempfile.TemporaryFile("w+", errors="replace") as log, _server(uri, port, log) as process:
        if _answers(server, process):
            print(f"\nCharts  {page}\nStop with Ctrl-C.\n", flush=True)
            if not options.no_browser and has_desktop():
                webbrowser.open(page)
        code = process.wait()
        log.seek(0)
        print(*log.read().splitlines()[-LAST_LINES:], sep="\n", file=sys.stderr)
        raise UserError(f"MLflow's server ended with exit code {code}")


def newest_page(tracking_uri: str, server: str) -> str:
    """Returns the page of the run that started last.

    It is the experiment's page before the first run, and if the run is a trial of a search: that
    page has the curves of all trials.
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


@contextmanager
def _server(uri: str, port: int, log: IO[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Starts MLflow's server, and ends it with the block: on Ctrl-C, SIGTERM and SIGHUP too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit)
    command = [sys.executable, "-m", "mlflow", "ui", "--host", LOOPBACK, "--port", str(port)]
    process = subprocess.Popen(
        # There is one user, and each worker takes four seconds to start.
        [*command, "--workers", "1", "--backend-store-uri", uri],
        # Its job runners, seven processes, are for evaluations of language models.
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _end(process)


def _exit(number: int, _frame: object) -> None:
    raise SystemExit(128 + number)


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
    """Ends a server and all its workers; a starting one may ignore SIGTERM."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=END_TIMEOUT_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
