"""What may happen to a run: a killed env runner, MLflow away, a full disk, signals, a power cut."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from tests.free_port import free_port
from tests.payload.command_line import (
    WITHOUT_JOBS,
    below,
    learning,
    mlflow_run,
    payload,
    run_folder,
    steps,
    tracked_run,
    tracked_runs,
    wait_for,
)
from tests.payload.small_disk import fill, small_disk

pytestmark = pytest.mark.slow


def env_runners(process: subprocess.Popen[str]) -> set[psutil.Process]:
    """The env runners of a run, dead or alive ones alike as long as the kernel knows them."""
    return {child for child in below(process) if child.name().startswith("ray::Atari")}


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
    """Environment steps of the first metric that MLflow has."""


@pytest.fixture(scope="module")
def survivor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Survivor]:
    folder = tmp_path_factory.mktemp("survivor")
    port = free_port()
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
        subprocess.Popen(
            command, env=WITHOUT_JOBS, stdout=log, stderr=log, start_new_session=True
        ) as server,
    ):
        try:
            yield
        finally:
            os.killpg(server.pid, signal.SIGTERM)


def test_a_killed_env_runner_ends_no_run(survivor: Survivor) -> None:
    assert survivor.exit_code == 130, survivor.output


def test_a_killed_env_runner_is_replaced_and_sampling_continues(survivor: Survivor) -> None:
    assert steps(survivor.folder)[-1] > survivor.steps_at_the_kill + 1000


def test_metrics_from_before_mlflow_was_there_are_delivered(survivor: Survivor) -> None:
    assert survivor.first_metric_at <= survivor.steps_at_the_kill


def test_a_run_that_mlflow_came_late_to_has_its_true_end(survivor: Survivor) -> None:
    assert survivor.mlflow.info.status == "KILLED"


def test_ctrl_c_saves_a_checkpoint_and_says_how_to_resume(survivor: Survivor) -> None:
    assert list((run_folder(survivor.folder) / "checkpoints").glob("checkpoint_*"))
    assert "--resume" in survivor.output


# The disk fills up.


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_disk(tmp_path_factory.mktemp("disk")) as folder:
        yield folder


@dataclass(frozen=True)
class Starved:
    """A run whose disk was filled up after its first checkpoint."""

    exit_code: int
    output: str
    folder: Path
    mlflow: Run


@pytest.fixture(scope="module")
def starved(disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Starved:
    uri = f"sqlite:///{tmp_path_factory.mktemp('elsewhere')}/mlflow.db"
    with learning(disk, "--checkpoint-every", "1", "--tracking-uri", uri) as process:
        checkpoints = run_folder(disk) / "checkpoints"
        wait_for(lambda: list(checkpoints.glob("checkpoint_*")))
        fill(disk / "somebody's video.mp4")
        assert process.stdout is not None
        output = process.stdout.read()
        return Starved(process.wait(timeout=120), output, disk, tracked_run(uri))


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


# A signal reaches Ray's processes as well as the driver.


def to_the_process_group(process: subprocess.Popen[str], number: int) -> None:
    """As a terminal that is closed and `timeout` send it."""
    os.killpg(process.pid, number)


def to_every_process(process: subprocess.Popen[str], number: int) -> None:
    """As systemd sends it to a control group."""
    for each in [*below(process), psutil.Process(process.pid)]:
        each.send_signal(number)


@dataclass(frozen=True)
class Stopped:
    """A run that was stopped by a signal."""

    signal: int
    exit_code: int
    output: str
    left_behind: list[str]
    """Processes of its Ray that are there after its end."""
    folder: Path


@pytest.fixture(
    scope="module",
    params=[(to_the_process_group, signal.SIGHUP), (to_every_process, signal.SIGTERM)],
    ids=["process group", "every process"],
)
def stopped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    send, number = request.param
    folder = tmp_path_factory.mktemp("stopped")
    with learning(folder) as process:
        of_ray = below(process)
        send(process, number)
        assert process.stdout is not None
        output = process.stdout.read()
        code = process.wait(timeout=120)
        return Stopped(number, code, output, [str(p) for p in of_ray if runs(p)], folder)


def runs(process: psutil.Process) -> bool:
    """Whether a process is there, and not only its entry that nobody has asked for yet."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def test_a_signal_that_reaches_rays_processes_ends_the_run_in_order(stopped: Stopped) -> None:
    assert stopped.exit_code == 128 + stopped.signal, stopped.output


def test_a_signal_that_reaches_rays_processes_costs_no_checkpoint(stopped: Stopped) -> None:
    assert list((run_folder(stopped.folder) / "checkpoints").glob("checkpoint_*")), stopped.output


def test_a_signal_that_reaches_rays_processes_marks_the_run_killed(stopped: Stopped) -> None:
    assert mlflow_run(stopped.folder).info.status == "KILLED", stopped.output


def test_a_stopped_run_leaves_no_process_of_ray(stopped: Stopped) -> None:
    assert stopped.left_behind == []


# The power is cut, and the next run's GCS dies.


@dataclass(frozen=True)
class PowerCut:
    """A run whose processes were killed all at once."""

    folder: Path
    resumed_meanwhile: subprocess.CompletedProcess[str]
    """An attempt to resume it while it was alive."""
    driver: int


@pytest.fixture(scope="module")
def power_cut(tmp_path_factory: pytest.TempPathFactory) -> PowerCut:
    folder = tmp_path_factory.mktemp("power-cut")
    with learning(folder, "--checkpoint-every", "1") as process:
        checkpoints = run_folder(folder) / "checkpoints"
        wait_for(lambda: list(checkpoints.glob("checkpoint_*")))
        # A slow machine has a checkpoint before it has MLflow's database.
        wait_for((run_folder(folder) / "mlflow_run.json").exists)
        resumed = payload(folder, "train", "--resume")
        to_every_process(process, signal.SIGKILL)
    return PowerCut(folder, resumed, process.pid)


def test_a_run_that_is_alive_is_not_resumed(power_cut: PowerCut) -> None:
    assert power_cut.resumed_meanwhile.returncode == 2, power_cut.resumed_meanwhile.stdout
    (line,) = power_cut.resumed_meanwhile.stderr.splitlines()
    assert line.startswith("payload: --resume ")
    assert f"process {power_cut.driver}" in line


@dataclass(frozen=True)
class Headless:
    """A run whose GCS was killed, begun where another one was cut off."""

    exit_code: int
    output: str
    status: str
    """In MLflow, as the next one."""
    status_of_the_other: str


@pytest.fixture(scope="module")
def headless(power_cut: PowerCut) -> Headless:
    folder = power_cut.folder
    with learning(folder, "--checkpoint-every", "1") as process:
        newest = max((folder / "results" / "runs").iterdir())
        wait_for(lambda: list((newest / "checkpoints").glob("checkpoint_*")))
        (gcs,) = [each for each in below(process) if each.name() == "gcs_server"]
        gcs.kill()
        assert process.stdout is not None
        output = process.stdout.read()
        code = process.wait(timeout=120)
        run, other = tracked_runs(f"sqlite:///{folder}/results/mlflow.db")
        return Headless(code, output, run.info.status, other.info.status)


def test_a_run_without_gcs_fails_before_ray_aborts_it(headless: Headless) -> None:
    # Aborted by Ray, after 60 s, it would have a signal's exit code and be RUNNING.
    assert (headless.exit_code, headless.status) == (1, "FAILED"), headless.output


def test_a_run_without_gcs_names_its_last_checkpoint(headless: Headless) -> None:
    (line,) = [line for line in headless.output.splitlines() if line.startswith("FAILED")]
    assert "GCS" in line
    assert "Last checkpoint" in headless.output


def test_the_next_run_marks_the_one_that_was_cut_off_killed(headless: Headless) -> None:
    assert headless.status_of_the_other == "KILLED"
