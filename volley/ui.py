"""`volley ui`: MLflow or TensorBoard of a folder of results, or MLflow of the results account."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NoReturn

from head.command.tensorboard import tensorboard_command
from payload.errors import UserError
from payload.run.driver_lock import mark_dead_runs
from payload.run.undelivered import deliver_in_background
from payload.tracking.mlflow_experiment import EXPERIMENT_NAME, PARENT
from payload.tracking.mlflow_run import (
    DATABASE,
    Tracking,
    experiment_page,
    mlflow_client,
    run_page,
)
from volley.errors import not_installed, refused
from volley.ports import (
    LOOPBACK,
    TENSORBOARD_PORT,
    UI_PORT,
    answers,
    check_port,
    has_desktop,
)
from volley.results_account import CONTAINER

START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 5.0
LAST_LINES = 20
"""Lines of the server's output that are printed if it fails."""


@dataclass(frozen=True)
class Server:
    """A program that serves pages of the runs."""

    name: str
    command: list[str]
    page: str
    """What to open."""


def ui(options: argparse.Namespace) -> NoReturn:
    """Serves MLflow or TensorBoard until Ctrl-C, of this machine or of the results account.

    Raises:
        UserError: There is nothing to show yet, the port is in use, or the server fails.
    """
    with tempfile.TemporaryDirectory() as temporary:
        _serve(options, server_of(options, Path(temporary)), temporary)


def server_of(options: argparse.Namespace, temporary: Path) -> Server:
    """Returns the server that the options ask for.

    Raises:
        UserError: There is nothing to show yet, or the port is in use.
    """
    if options.from_results or options.results_account:
        if options.tensorboard:
            raise refused(
                "--tensorboard: the event files are not read from the results account",
                "volley pull NAME --from-results, then volley ui --tensorboard",
            )
        return _saved(options, temporary)
    return _tensorboard(options) if options.tensorboard else _mlflow(options)


def _serve(options: argparse.Namespace, served: Server, temporary: str) -> NoReturn:
    print(f"Starting {served.name} ...", flush=True)
    with (
        tempfile.TemporaryFile("w+", errors="replace") as log,
        running(served, temporary, log) as process,
    ):
        if answers_in_time(served, process):
            print(f"\nCharts  {served.page}\nStop with Ctrl-C.\n", flush=True)
            if not options.no_browser and has_desktop():
                webbrowser.open(served.page)
        code = process.wait()
        log.seek(0)
        print(*log.read().splitlines()[-LAST_LINES:], sep="\n", file=sys.stderr)
        raise UserError(f"{served.name}'s server ended with exit code {code}")


def _mlflow(options: argparse.Namespace) -> Server:
    """Returns MLflow's server of the embedded database, and the charts of the newest run."""
    results, port = options.results, options.port or UI_PORT
    if not (results / DATABASE).is_file():
        raise refused(f"--results {results}: no run there yet", "volley train")
    check_port(port, "volley ui --port")
    for line in mark_dead_runs(results):
        print(line)
    deliver_in_background(results, print)
    return _mlflow_of(Tracking.embedded(results, "").uri, port)


def _saved(options: argparse.Namespace, temporary: Path) -> Server:
    """Returns MLflow's server of a copy of the cluster's database; artifacts come from Blob."""
    from volley.saved_database import download_database
    from volley.source import Off, source

    port = options.port or UI_PORT
    check_port(port, "volley ui --port")
    off = source(options)
    assert isinstance(off, Off)
    results = off.results()
    database = download_database(results, temporary)
    print(f"A copy of MLflow's database in the account {results.account.name}: changes are lost.")
    container = f"{CONTAINER}@{results.account.name}.blob.core.windows.net"
    artifacts = ["--artifacts-destination", f"wasbs://{container}/mlartifacts"]
    return _mlflow_of(f"sqlite:///{database}", port, *artifacts)


def _mlflow_of(uri: str, port: int, *options: str) -> Server:
    """Returns MLflow's server of a database."""
    command = [sys.executable, "-m", "mlflow", "ui", "--host", LOOPBACK, "--port", str(port)]
    # There is one user, and each worker takes four seconds to start.
    command += ["--workers", "1", "--backend-store-uri", uri, *options]
    # Any other name is a web page that has itself resolved to this machine. Flags are stronger than
    # variables of MLflow. The port may be that of a tunnel.
    command += ["--allowed-hosts", f"{LOOPBACK}:*,localhost:*"]
    origins = [f"http://{host}:{port}" for host in (LOOPBACK, "localhost")]
    command += ["--cors-allowed-origins", ",".join(origins)]
    return Server("MLflow", command, newest_page(uri, f"http://{LOOPBACK}:{port}"))


def _tensorboard(options: argparse.Namespace) -> Server:
    """Returns TensorBoard's server of the event files below the results, those of scripts too."""
    results, port = options.results, options.port or TENSORBOARD_PORT
    if find_spec("tensorboard") is None:
        raise not_installed("TensorBoard", "payload")
    if next(results.rglob("*.tfevents.*"), None) is None:
        raise refused(f"--results {results}: no event files there", "volley train --tensorboard")
    check_port(port, "volley ui --tensorboard --port")
    command = tensorboard_command(sys.executable, results, port)
    return Server("TensorBoard", command, f"http://{LOOPBACK}:{port}")


def newest_page(tracking_uri: str, server: str) -> str:
    """Returns the page of the run that started last.

    It is the experiment's page before the first run, and if the run is a trial of a search: that
    page has the curves of all trials.
    """
    client = mlflow_client(tracking_uri)
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(experiments, order_by=["attributes.start_time DESC"], max_results=1)
    if not runs:
        experiment = client.get_experiment_by_name(EXPERIMENT_NAME)
        return server if experiment is None else experiment_page(server, experiment.experiment_id)
    info = runs[0].info
    if PARENT in runs[0].data.tags:
        return experiment_page(server, info.experiment_id)
    return run_page(server, info.experiment_id, info.run_id)


@contextmanager
def running(server: Server, temporary: str, log: IO[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a server, and ends it with the block: on Ctrl-C, SIGTERM and SIGHUP too."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _exit)
    process = subprocess.Popen(
        server.command,
        # MLflow's job runners, seven processes, are for evaluations of language models. TensorBoard
        # leaves a folder in that of temporary files.
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "TMPDIR": temporary},
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


def answers_in_time(server: Server, process: subprocess.Popen[bytes]) -> bool:
    """Waits until the server answers; False if it ended, or did not answer in time."""
    end = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < end:
        if answers(server.page):
            return True
        time.sleep(0.2)
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
