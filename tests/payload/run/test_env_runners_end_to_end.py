"""`train --env-runners`: a training on this machine that another process grows and shrinks."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from payload.run.ray_cluster import available_cpus
from payload.run.run_status import RunStatus
from tests.payload.command_line import TINY, learning, mlflow_run, payload, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(available_cpus() < 2, reason="two env runners need two CPUs"),
]

CARTPOLE = ("--env", "CartPole-v1", "--stop", '{"time_total_s": 300}')


@dataclass(frozen=True)
class Run:
    """A training with one env runner, then two, then one, stopped and resumed with two."""

    grown: RunStatus
    shrunk: RunStatus
    exit_code: int
    output: str
    mlflow: str
    over: RunStatus
    resumed: str
    """What the run says that continues it."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("resized")
    file, status = folder / "env_runners", folder / "status.json"
    options = ("--env-runners", str(file), "--status", str(status))

    def ask(number: int) -> None:
        aside = folder / "aside"
        aside.write_text(str(number))
        aside.replace(file)

    def until(number: int) -> RunStatus:
        wait_for(lambda: RunStatus.read(status).num_env_runners == number)
        return RunStatus.read(status)

    ask(1)
    with learning(folder, *CARTPOLE, *options) as process:
        ask(2)
        grown = until(2)
        ask(1)
        shrunk = until(1)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        output, code = process.stdout.read(), process.wait(timeout=120)
    ask(2)
    again = ("train", "--resume", "--config", TINY, "--stop", '{"training_iteration": 1}')
    resumed = payload(folder, *again, *options)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    return Run(
        grown=grown,
        shrunk=shrunk,
        exit_code=code,
        output=output,
        mlflow=mlflow_run(folder).info.run_id,
        over=RunStatus.read(status),
        resumed=resumed.stdout,
    )


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


def test_it_ends_as_it_would_have(run: Run) -> None:
    assert run.exit_code == 130, run.output


def test_the_status_of_a_training_names_its_mlflow_run(run: Run) -> None:
    assert (run.shrunk.state, run.shrunk.mlflow_run) == ("TRAINING", run.mlflow)


def test_the_status_of_a_training_has_the_time_left(run: Run) -> None:
    assert run.shrunk.seconds_left is not None
    assert 0 < run.shrunk.seconds_left < 300


def test_a_resumed_run_begins_with_the_number_of_then(run: Run) -> None:
    assert "env runners 2/2" in run.resumed


def test_the_status_of_a_run_that_is_over_says_so(run: Run) -> None:
    assert (run.over.state, run.over.num_env_runners) == ("FINISHED", 0)


def test_more_than_fit_are_no_error(tmp_path: Path) -> None:
    file = tmp_path / "env_runners"
    file.write_text("99")
    config = json.loads(TINY) | {"num_workers": 99}
    stop = ("--stop", '{"training_iteration": 1}', "--env-runners", str(file))
    done = payload(tmp_path, "train", *CARTPOLE[:2], "--config", json.dumps(config), *stop)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"env runners {available_cpus()}/99" in done.stdout


def test_a_driver_that_samples_itself_ignores_the_file(tmp_path: Path) -> None:
    config = json.dumps(json.loads(TINY) | {"num_workers": 0})
    file, stop = tmp_path / "env_runners", ("--stop", '{"training_iteration": 1}')
    options = ("--config", config, *stop, "--env-runners", str(file))
    done = payload(tmp_path, "train", *CARTPOLE[:2], *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"--env-runners {file} is ignored: config.num_env_runners is 0" in done.stdout
