"""training_plan.py: which run continues, and with how many env runners."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from payload.experiment import Experiment, Node, Settings, UserError, read_experiment
from payload.search.folder import PLAN
from tests.infra.boot_scripts import load


@pytest.fixture(scope="module")
def plan() -> ModuleType:
    return load("training_plan")


@pytest.fixture
def training(tmp_path: Path) -> Callable[..., Path]:
    """Makes the folder that a run command leaves on the head."""

    def make(experiment: str, stack: str = "{}") -> Path:
        (tmp_path / "experiment.yaml").write_text(experiment)
        (tmp_path / "stack.yaml").write_text(stack)
        return tmp_path

    return make


# How many env runners


@pytest.mark.parametrize(
    ("experiment", "stack", "expected"),
    [
        ("run: IMPALA", "{}", None),
        ("config: {num_workers: 13}", "{}", 13),
        ("config: {num_workers: 13}", '{"config": {"num_env_runners": 5}}', 5),
        ("pong: {run: IMPALA, config: {num_workers: 3}}", "{}", 3),
    ],
)
def test_the_stacks_number_is_read_over_the_experiments(
    plan: ModuleType,
    training: Callable[..., Path],
    experiment: str,
    stack: str,
    expected: int | None,
) -> None:
    assert plan.read_plan(training(experiment, stack)).config.num_env_runners == expected


@pytest.mark.parametrize(
    ("asked", "cpus", "number", "reason"),
    [
        (None, [6, 2, 2, 2, 2], 13, "14 CPUs, one of them for the driver"),
        (None, [1], 1, "1 CPUs, one of them for the driver"),
        (5, [6, 2, 2, 2, 2], 5, "as asked for"),
        (0, [6, 2], 0, "as asked for"),
        (13, [6], 5, "13 do not fit the 6 CPUs there are"),
    ],
)
def test_a_training_takes_what_was_asked_for_or_what_fits(
    plan: ModuleType, asked: int | None, cpus: list[int], number: int, reason: str
) -> None:
    experiment = Experiment(config=Settings(num_env_runners=asked))
    found = plan.env_runners(experiment, [Node(n) for n in cpus])
    assert found[0] == number
    assert reason in found[1]


def test_learners_that_have_no_room_are_refused(plan: ModuleType) -> None:
    with pytest.raises(UserError, match=r"config\.num_learners"):
        plan.env_runners(Experiment(config=Settings(num_learners=3)), [Node(2)])


def test_the_articles_settings_start_after_an_eviction(
    plan: ModuleType, training: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    folder = training("run: IMPALA\nconfig: {num_workers: 13, sample_batch_size: 50}\n")
    number, _ = plan.env_runners(plan.read_plan(folder), [Node(6)])
    command = plan.payload_command(folder, Path("/r"), None, number, "train")
    # As the payload reads it: the file, and over it the command line.
    (given,) = [json.loads(b) for a, b in itertools.pairwise(command) if a == "--config"]
    read = read_experiment(folder / "experiment.yaml", {"config": given})
    assert read.experiment.config.num_env_runners == 5


def test_the_trials_of_a_search_share_the_cpus_unless_a_number_is_asked_for(
    plan: ModuleType, training: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    folder = training("config: {lr: {grid_search: [1e-3, 1e-4]}}")
    number, reason = plan.env_runners(plan.read_plan(folder), [Node(6), Node(2)])
    assert (number, reason) == (None, "the trials of a search share 8 CPUs")
    command = plan.payload_command(folder, Path("/r"), None, number, "tune")
    assert command[1:4] == ["-m", "payload", "tune"]
    assert "--config" not in command
    asked = plan.read_plan(training("config: {num_workers: 2, lr: {grid_search: [1e-3, 1e-4]}}"))
    assert plan.env_runners(asked, [Node(6), Node(2)])[0] == 2


# Which run


def make_run(results: Path, name: str, checkpoints: int = 1) -> Path:
    run = results / "runs" / name
    run.mkdir(parents=True)
    for number in range(checkpoints):
        (run / f"checkpoints/checkpoint_{number:06d}").mkdir(parents=True)
    return run


def test_a_new_experiment_resumes_nothing(plan: ModuleType, tmp_path: Path) -> None:
    assert plan.run_to_resume(tmp_path) is None


def test_the_newest_run_with_a_checkpoint_is_resumed(plan: ModuleType, tmp_path: Path) -> None:
    # Runs that were restored have been written in any order.
    second = make_run(tmp_path, "IMPALA_Pong_2026-11-21_22-00-00")
    make_run(tmp_path, "IMPALA_Pong_2026-11-21_21-00-00")
    make_run(tmp_path, "IMPALA_Pong_2026-11-21_23-00-00", checkpoints=0)
    assert plan.run_to_resume(tmp_path) == second


def test_an_experiment_that_is_over_starts_a_new_run(plan: ModuleType, tmp_path: Path) -> None:
    make_run(tmp_path, "IMPALA_Pong_2026-11-21_21-00-00")
    plan.finish_runs(tmp_path)
    assert plan.run_to_resume(tmp_path) is None
    # Also where the new run is interrupted before its first checkpoint, and after it.
    again = make_run(tmp_path, "IMPALA_Pong_2026-11-21_22-00-00", checkpoints=0)
    assert plan.run_to_resume(tmp_path) is None
    (again / "checkpoints/checkpoint_000001").mkdir(parents=True)
    assert plan.run_to_resume(tmp_path) == again


def test_a_search_is_resumed_also_before_its_first_checkpoint(
    plan: ModuleType, tmp_path: Path
) -> None:
    search = make_run(tmp_path, "tune_IMPALA_Pong_2026-11-21_21-00-00", checkpoints=0)
    (search / PLAN).write_text("{}")
    assert plan.run_to_resume(tmp_path) == search
    plan.finish_runs(tmp_path)
    assert plan.run_to_resume(tmp_path) is None


def test_the_run_to_resume_is_named(
    plan: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    run = make_run(tmp_path, "IMPALA_Pong_2026-11-21_21-00-00")
    command = plan.payload_command(tmp_path, tmp_path, run, 1, "train")
    assert command[-2:] == ["--resume", str(run)]
