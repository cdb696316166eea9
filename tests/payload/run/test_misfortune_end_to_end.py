"""What a run must outlive: a killed env runner, MLflow away, a full disk."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.payload.command_line import learning, payload, run_folder, steps, tracked_run, wait_for

pytestmark = pytest.mark.slow

MEBIBYTE = 1 << 20


def env_runners(process: subprocess.Popen[str]) -> set[psutil.Process]:
    """The env runners of a run, dead or alive ones alike as long as the kernel knows them."""
    below = psutil.Process(process.pid).children(recursive=True)
    return {child for child in below if child.name().startswith("ray::Atari")}


# An env runner dies while the MLflow server is away.


@dataclass(frozen=True)
class Survivor:
    """A run that outlived both, and was then stopped with Ctrl-C."""

    exit_code: int
    output: str
    steps_at_the_kill: int
    folder: Path
    mlflow: Run
    first_metric_at: int
    """Agent steps of the first metric that MLflow has."""


@pytest.fixture(scope="module")
def survivor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Survivor]:
    folder = tmp_path_factory.mktemp("survivor")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    uri = f"http://127.0.0.1:{port}"
    with learning(folder, "--tracking-uri", uri) as process:
        (victim,) = env_runners(process)
        at_the_kill = steps(folder)[-1]
        victim.kill()
        with mlflow_server(folder, port):
            wait_for(lambda: env_runners(process) - {victim})
            wait_for(lambda: steps(folder)[-1] > at_the_kill + 1000)
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            output = process.stdout.read()
            run = tracked_run(uri)
            history = MlflowClient(uri).get_metric_history(run.info.run_id, "training_iteration")
            yield Survivor(
                process.wait(timeout=120), output, at_the_kill, folder, run, history[0].step
            )


@contextmanager
def mlflow_server(folder: Path, port: int) -> Iterator[None]:
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--workers", "1"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--backend-store-uri", f"sqlite:///{folder}/server.db"),
        *("--artifacts-destination", str(folder / "artifacts")),
    ]
    with (
        (folder / "server.log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True) as server,
    ):
        try:
            yield
        finally:
            os.killpg(server.pid, signal.SIGTERM)


def test_a_killed_env_runner_ends_no_run(survivor: Survivor) -> None:
    assert survivor.exit_code == 130, survivor.output


def test_a_killed_env_runner_is_replaced_and_sampling_goes_on(survivor: Survivor) -> None:
    assert steps(survivor.folder)[-1] > survivor.steps_at_the_kill + 1000


def test_metrics_from_before_mlflow_was_there_are_delivered(survivor: Survivor) -> None:
    assert survivor.first_metric_at <= survivor.steps_at_the_kill


def test_a_run_that_mlflow_came_late_to_has_its_true_end(survivor: Survivor) -> None:
    assert survivor.mlflow.info.status == "KILLED"


# The disk fills up.


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file system of 32 MiB."""
    folder = tmp_path_factory.mktemp("disk")
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mount.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@dataclass(frozen=True)
class Starved:
    """A run whose disk was filled up after its first checkpoint."""

    exit_code: int
    output: str
    folder: Path
    mlflow: Run


@pytest.fixture(scope="module")
def starved(small_disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Starved:
    uri = f"sqlite:///{tmp_path_factory.mktemp('elsewhere')}/mlflow.db"
    with learning(small_disk, "--checkpoint-every", "1", "--tracking-uri", uri) as process:
        checkpoints = run_folder(small_disk) / "checkpoints"
        wait_for(lambda: list(checkpoints.glob("checkpoint_*")))
        fill(small_disk / "somebody's video.mp4")
        assert process.stdout is not None
        output = process.stdout.read()
        return Starved(process.wait(timeout=120), output, small_disk, tracked_run(uri))


def fill(path: Path) -> None:
    """Takes all the space that is left, whatever somebody else gives back meanwhile."""
    with path.open("wb", buffering=0) as file:
        end = time.monotonic() + 10.0
        while time.monotonic() < end:
            try:
                file.write(bytes(MEBIBYTE // 64))
            except OSError:
                time.sleep(0.01)


def test_a_full_disk_ends_the_run_with_exit_code_1(starved: Starved) -> None:
    assert starved.exit_code == 1, starved.output


def test_a_full_disk_is_told_with_the_checkpoint_that_is_intact(starved: Starved) -> None:
    (line,) = [line for line in starved.output.splitlines() if line.startswith("FAILED")]
    assert "No space left on device" in line
    assert "is intact" in line


def test_a_full_disk_leaves_a_checkpoint_that_plays(starved: Starved) -> None:
    done = payload(starved.folder, "evaluate", str(run_folder(starved.folder)), "--episodes", "1")
    assert done.returncode == 0, done.stderr


def test_a_full_disk_fails_the_mlflow_run(starved: Starved) -> None:
    assert starved.mlflow.info.status == "FAILED", starved.output
