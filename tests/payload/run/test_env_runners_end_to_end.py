"""Env runners of a training on this machine: lost, grown and shrunk, stopped with all processes."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from payload.run.ray_cluster import available_cpus
from payload.run.reporting import RunStatus
from tests.payload.command_line import (
    ALONE,
    SLOW,
    TINY,
    below,
    in_process,
    learning,
    mlflow_run,
    payload,
    run_folder,
    steps,
    wait_for,
    with_database,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("ray_here"),
    pytest.mark.skipif(available_cpus() < 2, reason="two env runners need two CPUs"),
]

ONE_ITERATION = ("--stop", '{"training_iteration": 1}')


@dataclass(frozen=True)
class Run:
    """A training whose env runner was killed, then with two env runners, then with one.

    SIGTERM to it and to every process of its Ray ended it, as systemd sends it to a control group.
    """

    folder: Path
    steps_at_the_kill: int
    grown: RunStatus
    shrunk: RunStatus
    exit_code: int
    output: str
    left_behind: list[psutil.Process]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = with_database(tmp_path_factory.mktemp("resized"))
    status = folder / "status.json"
    options = ("--env-runners", "env_runners", "--status", "status.json")

    def ask(number: int) -> None:
        aside = folder / "aside"
        aside.write_text(str(number))
        aside.replace(folder / "env_runners")

    def until(number: int) -> RunStatus:
        wait_for(lambda: RunStatus.read(status).num_env_runners == number)
        return RunStatus.read(status)

    ask(1)
    with learning(folder, *SLOW, "--stop", '{"time_total_s": 300}', *options) as process:
        (victim,) = env_runners(process)
        at_the_kill = steps(folder)[-1]
        victim.kill()
        wait_for(lambda: env_runners(process) - {victim})
        wait_for(lambda: steps(folder)[-1] > at_the_kill + 200)
        ask(2)
        grown = until(2)
        ask(1)
        shrunk = until(1)
        every_process = [*below(process), psutil.Process(process.pid)]
        for each in every_process:
            each.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=120)[0]
        left = [each for each in every_process if runs(each)]
        return Run(folder, at_the_kill, grown, shrunk, process.returncode, output, left)


def env_runners(process: subprocess.Popen[str]) -> set[psutil.Process]:
    """The env runners of a run, dead or alive ones alike as long as the kernel knows them."""
    return {child for child in below(process) if child.name().startswith("ray::Gymnasium")}


def runs(process: psutil.Process) -> bool:
    """Whether a process is there, and not only its entry that nobody has asked for yet."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def test_a_killed_env_runner_is_replaced_and_sampling_continues(run: Run) -> None:
    assert "Env runner 1 was lost and is back" in run.output
    assert steps(run.folder)[-1] > run.steps_at_the_kill + 200


def test_it_grows_and_shrinks(run: Run) -> None:
    lines = [line for line in run.output.splitlines() if line.startswith("Env runners")]
    assert lines == [
        "Env runners: now 2 (were 1, target 2)",
        "Env runners: now 1 (were 2, target 1)",
    ]


def test_it_samples_meanwhile(run: Run) -> None:
    assert run.grown.env_steps is not None
    assert run.shrunk.env_steps is not None
    assert run.shrunk.env_steps > run.grown.env_steps > 0


def test_the_status_of_a_training_names_its_mlflow_run(run: Run) -> None:
    run_id = mlflow_run(run.folder).info.run_id
    assert (run.shrunk.state, run.shrunk.mlflow_run) == ("TRAINING", run_id)


def test_the_status_of_a_training_has_the_time_left(run: Run) -> None:
    assert run.shrunk.seconds_left is not None
    assert 0 < run.shrunk.seconds_left < 300


def test_a_signal_that_reaches_rays_processes_ends_the_run_in_order(run: Run) -> None:
    assert run.exit_code == 128 + signal.SIGTERM, run.output
    assert RunStatus.read(run.folder / "status.json").state == "KILLED"


def test_a_signal_that_reaches_rays_processes_costs_no_checkpoint(run: Run) -> None:
    assert list((run_folder(run.folder) / "checkpoints").glob("checkpoint_*")), run.output


def test_a_signal_that_reaches_rays_processes_marks_the_run_killed(run: Run) -> None:
    assert mlflow_run(run.folder).info.status == "KILLED", run.output


def test_a_stopped_run_leaves_no_process_of_ray(run: Run) -> None:
    assert run.left_behind == []


def test_a_resumed_run_takes_as_many_as_fit_of_the_number_of_then(run: Run) -> None:
    (run.folder / "env_runners").write_text("99")
    config = json.loads(TINY) | {"num_cpus_per_worker": 2}
    options = ("--env-runners", "env_runners", "--status", "over.json", *ONE_ITERATION)
    # A process: env runners of the tests' own Ray cannot import what the run had in a folder.
    done = payload(run.folder, "train", "--resume", "--config", json.dumps(config), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "env runners 1/99" in done.stdout
    over = RunStatus.read(run.folder / "over.json")
    assert (over.state, over.num_env_runners) == ("FINISHED", 0)


def test_a_driver_that_samples_itself_ignores_the_file(tmp_path: Path) -> None:
    file = tmp_path / "env_runners"
    options = (*SLOW, "--config", ALONE, *ONE_ITERATION, "--env-runners", str(file))
    done = in_process(with_database(tmp_path), "train", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"--env-runners {file} is ignored: config.num_env_runners is 0" in done.stdout
