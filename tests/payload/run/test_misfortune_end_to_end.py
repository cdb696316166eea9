"""What may happen to a run: a full disk, Ctrl-C, a power cut, a second driver.

test_env_runners_end_to_end.py kills env runners and sends signals to Ray's processes;
test_cluster_end_to_end.py removes a node and kills Ray's GCS.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from payload.errors import UserError
from payload.run.driver_lock import LOCK, driver_lock
from payload.run.run_folder import RunFolder
from payload.tracking.mlflow_run import DATABASE
from tests.payload.command_line import (
    ALONE,
    in_process,
    mlflow_run,
    run_folder,
    tracked_run,
    wait_for,
    with_database,
)
from tests.payload.small_disk import fill, small_disk

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_here")]

SHORT = ALONE.replace("{", '{"env_config": {"max_episode_frames": 400}, ', 1)
"""Its episodes, and so its video, last seconds."""
TRAIN = ("train", "--config", SHORT, "--checkpoint-every", "0.1")


def wait_for_a_checkpoint(folder: Path) -> None:
    wait_for(lambda: list(folder.glob("results/runs/*/checkpoints/checkpoint_*")))


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
    elsewhere = with_database(tmp_path_factory.mktemp("elsewhere"))
    uri = f"sqlite:///{elsewhere}/results/{DATABASE}"

    def fill_up(_: Path) -> None:
        wait_for_a_checkpoint(disk)
        fill(disk / "somebody's video.mp4")

    done = in_process(disk, *TRAIN, "--tracking-uri", uri, meanwhile=fill_up)
    return Starved(done.returncode, done.stdout, disk, tracked_run(uri))


def test_a_full_disk_ends_the_run_with_the_exit_code_of_what_may_pass(starved: Starved) -> None:
    assert starved.exit_code == os.EX_TEMPFAIL, starved.output


def test_a_full_disk_is_told_with_the_checkpoint_that_is_intact(starved: Starved) -> None:
    (line,) = [line for line in starved.output.splitlines() if line.startswith("FAILED")]
    assert "No space left on device" in line
    assert "is intact" in line


def test_a_full_disk_leaves_a_checkpoint_that_plays(starved: Starved) -> None:
    run = str(run_folder(starved.folder))
    done = in_process(starved.folder, "evaluate", run, "--episodes", "1")
    assert done.returncode == 0, done.stderr


def test_a_full_disk_fails_the_mlflow_run(starved: Starved) -> None:
    assert starved.mlflow.info.status == "FAILED", starved.output


# A second driver, Ctrl-C, and a power cut.


@dataclass(frozen=True)
class Interrupted:
    """A run that was stopped with Ctrl-C."""

    folder: Path
    done: subprocess.CompletedProcess[str]
    second_driver: str
    """Why it refused a second driver while it trained."""


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    folder = with_database(tmp_path_factory.mktemp("interrupted"))

    refusals: list[str] = []

    def press_ctrl_c(_: Path) -> None:
        wait_for_a_checkpoint(folder)
        with pytest.raises(UserError) as refused, driver_lock(RunFolder(run_folder(folder))):
            pytest.fail("two drivers at once")
        refusals.append(str(refused.value))
        os.kill(os.getpid(), signal.SIGINT)

    done = in_process(folder, *TRAIN, meanwhile=press_ctrl_c)
    return Interrupted(folder, done, *refusals)


def test_a_run_that_trains_has_one_driver(interrupted: Interrupted) -> None:
    assert f"process {os.getpid()} on {socket.gethostname()}" in interrupted.second_driver


def test_a_run_that_another_process_trains_is_not_resumed(interrupted: Interrupted) -> None:
    with driver_lock(RunFolder(run_folder(interrupted.folder))):
        done = in_process(interrupted.folder, "train", "--resume")
    assert done.returncode == 2, done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("payload: --resume ")
    assert f"process {os.getpid()}" in line


def test_ctrl_c_saves_a_checkpoint_and_says_how_to_resume(interrupted: Interrupted) -> None:
    assert interrupted.done.returncode == 130, interrupted.done.stdout
    assert list((run_folder(interrupted.folder) / "checkpoints").glob("checkpoint_*"))
    assert "--resume" in interrupted.done.stdout


def test_the_next_run_marks_the_one_that_was_cut_off_killed(interrupted: Interrupted) -> None:
    folder, run = interrupted.folder, mlflow_run(interrupted.folder)
    assert run.info.status == "KILLED"
    client = MlflowClient(f"sqlite:///{folder}/results/{DATABASE}")
    # As after a power cut: the process that trained it is gone.
    client.update_run(run.info.run_id, "RUNNING")
    with subprocess.Popen("true") as gone:
        gone.wait()
    (run_folder(folder) / LOCK).write_text(f"{socket.gethostname()} {gone.pid}")
    done = in_process(folder, *TRAIN, "--stop", '{"training_iteration": 1}')
    assert "ended unexpectedly at " in done.stdout
    assert client.get_run(run.info.run_id).info.status == "KILLED"
