"""training_plan.py: which run train.py goes on with, and with how many env runners."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.infra.boot_scripts import load


@pytest.fixture(scope="module")
def plan() -> ModuleType:
    return load("training_plan")


def read(plan: ModuleType, folder: Path, experiment: str) -> Any:
    path = folder / "experiment.yaml"
    path.write_text(experiment)
    return plan.read_wanted(path)


# How many env runners


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("{}", (None, 1, 0)),
        ("{num_env_runners: 5}", (5, 1, 0)),
        ("{num_workers: 5}", (5, 1, 0)),
        ("{num_env_runners: 0}", (0, 1, 0)),
        ("{num_cpus_per_worker: 2, num_learners: 3}", (None, 2, 3)),
        ("{num_learners: 1, num_gpus_per_learner: 1}", (None, 1, 0)),
    ],
)
def test_the_experiment_is_read_as_the_payload_reads_it(
    plan: ModuleType, tmp_path: Path, config: str, expected: tuple[int | None, int, int]
) -> None:
    found = read(plan, tmp_path, f"run: IMPALA\nconfig: {config}\n")
    assert found == plan.Wanted(*expected)


def test_a_file_of_rllib_train_is_read_too(plan: ModuleType, tmp_path: Path) -> None:
    found = read(plan, tmp_path, "pong: {run: IMPALA, config: {num_workers: 3}}")
    assert found == plan.Wanted(3)


@pytest.mark.parametrize("experiment", ["config: [1]", "config: {num_wokers: 3}", "[", "run: DQN"])
def test_an_experiment_that_the_payload_refuses_ends_at_once(
    plan: ModuleType, tmp_path: Path, experiment: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        read(plan, tmp_path, experiment)
    assert refused.value.code == 2
    assert capfd.readouterr().out.startswith("payload: ")


@pytest.mark.parametrize(
    ("wanted", "by_stack", "cpus", "expected"),
    [
        # The articles' 6 + 8 - 1.
        ((None,), None, 14, 13),
        ((None,), None, 1, 1),
        ((None, 2), None, 14, 6),
        ((None, 1, 3), None, 14, 11),
        # The experiment's own number is left to the payload, which refuses what does not fit.
        ((5,), None, 14, None),
        ((0,), None, 14, None),
        ((99,), None, 14, None),
        ((None,), 7, 14, 7),
        ((5,), 7, 14, 7),
        ((5,), 99, 14, 99),
    ],
)
def test_a_first_start_has_what_was_asked_for_or_all_cpus_but_one(
    plan: ModuleType,
    wanted: tuple[int | None, ...],
    by_stack: int | None,
    cpus: int,
    expected: int | None,
) -> None:
    number, _ = plan.env_runners(plan.Wanted(*wanted), by_stack, cpus, begun=False)
    assert number == expected


@pytest.mark.parametrize(("own", "by_stack"), [(13, None), (None, 13), (5, 13)])
def test_a_training_that_has_begun_takes_what_is_left(
    plan: ModuleType, own: int | None, by_stack: int | None
) -> None:
    number, reason = plan.env_runners(plan.Wanted(own), by_stack, 6, begun=True)
    assert number == 5
    assert "13 do not fit the 6 CPUs" in reason


def test_a_training_that_has_begun_keeps_what_fits_exactly(plan: ModuleType) -> None:
    number, _ = plan.env_runners(plan.Wanted(None), 14, 14, begun=True)
    assert number == 14


def test_it_says_that_the_stack_wins_over_the_experiment(plan: ModuleType) -> None:
    _, reason = plan.env_runners(plan.Wanted(5), 7, 14, begun=False)
    assert reason == "7 env runners: numEnvRunners of the stack wins over the experiment's 5"


@pytest.mark.parametrize(("number", "expected"), [(None, []), (7, [{"num_env_runners": 7}])])
def test_the_payload_is_told_a_number_only_where_there_is_one(
    plan: ModuleType,
    number: int | None,
    expected: list[dict[str, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    command = plan.payload_command(Path("/e.yaml"), Path("/r"), None, number)
    given = [json.loads(b) for a, b in itertools.pairwise(command) if a == "--config"]
    assert given == expected


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


def test_the_run_to_resume_is_named(
    plan: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    run = make_run(tmp_path, "IMPALA_Pong_2026-11-21_21-00-00")
    command = plan.payload_command(Path("/e.yaml"), tmp_path, run, None)
    assert command[-2:] == ["--resume", str(run)]
