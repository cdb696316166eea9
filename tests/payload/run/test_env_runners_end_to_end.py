"""Env runners of a training on this machine: killed, and stopped with all its processes.

test_cluster_end_to_end.py adds and removes env runners.
"""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from payload.run.run_status import RunStatus
from tests.payload.command_line import (
    SLOW,
    below,
    learning,
    mlflow_run,
    run_folder,
    steps,
    wait_for,
    with_database,
)

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Run:
    """A training whose env runner was killed and replaced.

    It ended on SIGTERM, sent to it and every process of its Ray, as systemd stops a control group.
    """

    folder: Path
    steps_at_the_kill: int
    status: RunStatus
    """Its status while it trained."""
    exit_code: int
    output: str
    left_behind: list[psutil.Process]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = with_database(tmp_path_factory.mktemp("killed"))
    options = ("--stop", '{"time_total_s": 300}', "--status", "status.json")
    with learning(folder, *SLOW, *options) as process:
        (victim,) = env_runners(process)
        at_the_kill = steps(folder)[-1]
        victim.kill()
        wait_for(lambda: env_runners(process) - {victim})
        wait_for(lambda: steps(folder)[-1] > at_the_kill + 200)
        status = RunStatus.read(folder / "status.json")
        every_process = [*below(process), psutil.Process(process.pid)]
        for each in every_process:
            each.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=120)[0]
        left = [each for each in every_process if runs(each)]
        return Run(folder, at_the_kill, status, process.returncode, output, left)


def env_runners(process: subprocess.Popen[str]) -> set[psutil.Process]:
    """Returns the env runners of a run, dead or alive, as long as the kernel lists them."""
    return {child for child in below(process) if child.name().startswith("ray::Gymnasium")}


def runs(process: psutil.Process) -> bool:
    """Returns whether a process runs, and is not a zombie."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def test_a_killed_env_runner_is_replaced_and_sampling_continues(run: Run) -> None:
    assert "Env runner 1 was lost and is back" in run.output
    assert steps(run.folder)[-1] > run.steps_at_the_kill + 200


def test_the_status_of_a_training_names_its_mlflow_run(run: Run) -> None:
    run_id = mlflow_run(run.folder).info.run_id
    assert (run.status.state, run.status.mlflow_run) == ("TRAINING", run_id)


def test_the_status_of_a_training_has_the_time_left(run: Run) -> None:
    assert run.status.seconds_left is not None
    assert 0 < run.status.seconds_left < 300


def test_a_signal_that_reaches_rays_processes_ends_the_run_in_order(run: Run) -> None:
    assert run.exit_code == 128 + signal.SIGTERM, run.output
    assert RunStatus.read(run.folder / "status.json").state == "KILLED"


def test_a_signal_that_reaches_rays_processes_costs_no_checkpoint(run: Run) -> None:
    assert list((run_folder(run.folder) / "checkpoints").glob("checkpoint_*")), run.output


def test_a_signal_that_reaches_rays_processes_marks_the_run_killed(run: Run) -> None:
    assert mlflow_run(run.folder).info.status == "KILLED", run.output


def test_a_stopped_run_leaves_no_process_of_ray(run: Run) -> None:
    assert run.left_behind == []
