"""The command line as a user types it, and what a run leaves in its folder."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from mlflow import MlflowClient
from mlflow.entities import Run

from payload.tracking.mlflow_run import EXPERIMENT_NAME

TINY = (
    '{"num_workers": 1, "num_envs_per_worker": 4, "sample_batch_size": 8, '
    '"min_time_s_per_iteration": 1}'
)
WITHOUT_JOBS = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
"""Of an MLflow server. Its job runners, seven processes, are for evaluations of language models."""
ENDS_WITHIN_S = 600
"""A machine that starts two Rays at once, from a cold disk, has taken two minutes for each."""


def payload(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m payload` in `folder`."""
    return subprocess.run(
        [sys.executable, "-m", "payload", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=ENDS_WITHIN_S,
        check=False,
    )


@contextmanager
def running(folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a command in `folder`; its output and errors are one stream."""
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
            next(line for line in process.stdout if line.startswith("Training started after"))
            yield process
        finally:
            process.terminate()


def below(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """All processes of the Ray that a run has started."""
    return psutil.Process(process.pid).children(recursive=True)


def tracked_runs(tracking_uri: str) -> list[Run]:
    """The MLflow runs at a tracking server or database, the newest first."""
    client = MlflowClient(tracking_uri)
    experiment = client.get_experiment_by_name(EXPERIMENT_NAME)
    return list(client.search_runs([experiment.experiment_id]))


def tracked_run(tracking_uri: str) -> Run:
    """The only MLflow run at a tracking server or database."""
    (run,) = tracked_runs(tracking_uri)
    return run


def mlflow_run(folder: Path) -> Run:
    """The only MLflow run in a folder's results."""
    return tracked_run(f"sqlite:///{folder}/results/mlflow.db")


def run_folder(folder: Path) -> Path:
    (path,) = (folder / "results" / "runs").iterdir()
    return path


def steps(folder: Path) -> list[int]:
    """Environment steps after each iteration, from progress.csv."""
    with (run_folder(folder) / "progress.csv").open() as file:
        return [int(row["num_env_steps_sampled_lifetime"]) for row in csv.DictReader(file)]


def wait_for(condition: Callable[[], object], timeout_s: float = 120.0) -> None:
    """Waits until a condition holds, and fails if it never does."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.2)
