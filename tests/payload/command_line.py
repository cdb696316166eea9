"""The command line as a user types it, and what a run leaves in its folder."""

from __future__ import annotations

import csv
import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import psutil
import pytest
import ray
from mlflow import MlflowClient
from mlflow.entities import Run

from payload.__main__ import main
from payload.run.terminal import LogStream
from payload.tracking.mlflow_experiment import EXPERIMENT_NAME
from payload.tracking.mlflow_run import DATABASE

TINY = (
    '{"num_workers": 1, "num_envs_per_worker": 4, "sample_batch_size": 8, '
    '"min_time_s_per_iteration": 0.5}'
)
SLOW = (
    *("--env", "slow:Slow-v0"),
    *("--source-directory", str(Path(__file__).parent / "slow_environment")),
)
"""Options of a run that leaves the machine's cores to others."""
ALONE = TINY.replace('"num_workers": 1', '"num_workers": 0')
"""Config of a run without env runners: its driver samples."""
WITHOUT_JOBS = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""Environment of an MLflow server without its seven job runners, which evaluate language models."""
ENDS_WITHIN_S = 600
"""A machine that started two Rays at once from a cold disk took two minutes for each."""


def payload(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m payload` in `folder`."""
    return _run_module("payload", folder, arguments)


def volley(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `volley` in `folder`.

    A script of `volley run` joins that process's Ray. It could not join the Ray of this process,
    which keeps the token of an earlier cluster.
    """
    return _run_module("volley", folder, arguments)


def _run_module(
    module: str, folder: Path, arguments: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
    )


def in_process(
    folder: Path,
    *arguments: str,
    meanwhile: Callable[[Path], None] | None = None,
    command: Callable[[list[str]], int] = main,
) -> subprocess.CompletedProcess[str]:
    """Runs the same command in this process, where RLlib is imported already.

    It uses this process's Ray, see `local_ray`, and disconnects from a cluster that it joined.

    Args:
        command: The program; `python -m payload` by default.
        meanwhile: Acts on the run from a thread; receives the file of the run's output.
    """
    with tempfile.TemporaryDirectory() as outputs:
        files = Path(outputs, "stdout"), Path(outputs, "stderr")
        with _as_in_a_process(folder), _output_to(*files), _in_thread(meanwhile, files[0]):
            code = command(list(arguments))
        stdout, stderr = (file.read_text() for file in files)
    return subprocess.CompletedProcess(["payload", *arguments], code, stdout, stderr)


@contextmanager
def _as_in_a_process(folder: Path) -> Iterator[None]:
    """Undoes what a command changes in its process, and unloads modules from folders it added."""
    environment, path, modules = dict(os.environ), list(sys.path), set(sys.modules)
    had_ray = ray.is_initialized()
    try:
        with chdir(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if not had_ray:
            ray.shutdown()
        os.environ.clear()
        os.environ.update(environment)
        added = [entry for entry in sys.path if entry not in path]
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if any(file.startswith(f"{entry}{os.sep}") for entry in added):
                del sys.modules[name]


@contextmanager
def _output_to(stdout: Path, stderr: Path) -> Iterator[None]:
    """Redirects file descriptors 1 and 2, and Python's own output, to files."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    for descriptor, file in ((1, stdout), (2, stderr)):
        with file.open("w") as opened:
            os.dup2(opened.fileno(), descriptor)
    try:
        with redirect_stdout(LogStream(1)), redirect_stderr(LogStream(2)):
            yield
    finally:
        for descriptor, old in zip((1, 2), saved, strict=True):
            os.dup2(old, descriptor)
            os.close(old)


@contextmanager
def _in_thread(meanwhile: Callable[[Path], None] | None, output: Path) -> Iterator[None]:
    """Runs a function in a thread; if it fails, stops the command as Ctrl-C does."""
    errors: list[BaseException] = []
    over = threading.Event()

    def run() -> None:
        assert meanwhile is not None
        try:
            meanwhile(output)
        except BaseException as error:
            errors.append(error)
            if not over.is_set():  # Otherwise it would end the tests.
                os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=run)
    if meanwhile is not None:
        thread.start()
    yield
    over.set()
    if meanwhile is not None:
        thread.join()
    if errors:
        raise errors[0]


@functools.cache
def _empty_database() -> bytes:
    """Returns an empty MLflow database; MLflow creates its fifty or so tables one by one."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, DATABASE)
        MlflowClient(f"sqlite:///{file}").search_experiments()
        return file.read_bytes()


def with_database(folder: Path, name: str = "results") -> Path:
    """Puts an empty MLflow database where runs in `folder` look for it; returns the folder."""
    results = folder / name
    results.mkdir(parents=True, exist_ok=True)
    (results / DATABASE).write_bytes(_empty_database())
    return folder


@contextmanager
def running(folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a command in `folder`, with its output and errors in one stream."""
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Signals to its process group must not reach the tests.
        start_new_session=True,
    ) as process:
        yield process


@contextmanager
def learning(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Runs `python -m payload train` in `folder`; yields after its first learner update."""
    train = (sys.executable, "-m", "payload", "train", "--config", TINY, *arguments)
    with running(folder, *train) as process:
        try:
            assert process.stdout is not None
            output = ""
            for line in process.stdout:
                output += line
                if line.startswith("Training started after"):
                    break
            else:
                pytest.fail(output)
            yield process
        finally:
            process.terminate()


def below(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Returns all processes of the Ray that a run started."""
    return psutil.Process(process.pid).children(recursive=True)


def tracked_runs(tracking_uri: str) -> list[Run]:
    """Returns the MLflow runs at a tracking server or database, newest first."""
    client = MlflowClient(tracking_uri)
    experiment = client.get_experiment_by_name(EXPERIMENT_NAME)
    return list(client.search_runs([experiment.experiment_id]))


def tracked_run(tracking_uri: str) -> Run:
    """Returns the only MLflow run at a tracking server or database."""
    (run,) = tracked_runs(tracking_uri)
    return run


def mlflow_run(folder: Path) -> Run:
    """Returns the only MLflow run in a folder's results."""
    return tracked_run(f"sqlite:///{folder}/results/mlflow.db")


def run_folder(folder: Path) -> Path:
    (path,) = (folder / "results" / "runs").iterdir()
    return path


def steps(folder: Path) -> list[int]:
    """Returns the environment steps after each iteration, from progress.csv."""
    with (run_folder(folder) / "progress.csv").open() as file:
        return [int(row["num_env_steps_sampled_lifetime"]) for row in csv.DictReader(file)]


def wait_for_line(output: Path, words: str) -> None:
    """Waits until a file contains these words."""
    wait_for(lambda: words in output.read_text())


def wait_for(condition: Callable[[], object], timeout_s: float = 120.0) -> None:
    """Waits until a condition holds, and fails if it never does."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.2)
