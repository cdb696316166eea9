"""The queue's reading of an experiment, the run it resumes, and the payload's command line."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import payload.experiment.file
from head.queue import plan
from infra.config.stack_settings import StackSettings
from infra.stack.head_software import cluster_settings
from payload.environments.conda_worker import LOCK
from payload.experiment import Experiment, read_experiment
from payload.room import Needs, Node, Room
from payload.search.search_folder import PLAN
from tests.conda_channel import write_channel
from tests.infra.declared_stack import REQUIRED


@pytest.fixture
def training(tmp_path: Path) -> Callable[..., Path]:
    """Makes the folder that the head keeps of an experiment."""

    def make(experiment: str, stack: str = "{}") -> Path:
        (tmp_path / "experiment.yaml").write_text(experiment)
        (tmp_path / "stack.yaml").write_text(stack)
        return tmp_path

    return make


# The experiment


@pytest.mark.slow
def test_conda_packages_are_installed_on_the_head_and_their_lock_file_travels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "PACKAGES", tmp_path / "packages")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path / "rattler"))
    file = tmp_path / "environment.yml"
    url = write_channel(tmp_path / "channel")
    file.write_text(f"channels: ['{url}']\ndependencies: [greeter]\n")
    experiment = Experiment(conda_dependencies_file=str(file))
    found = plan.job_environment(experiment, tmp_path, tmp_path / "results")
    worker = f"{sys.executable} -m payload.environments.conda_worker {sys.executable}"
    assert found["py_executable"] == worker
    assert (tmp_path / "working-directory" / LOCK).exists()
    (program,) = tmp_path.glob(".cache/volley/conda-*/bin/greet")
    assert program.exists()


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
    training: Callable[..., Path],
    experiment: str,
    stack: str,
    expected: int | None,
) -> None:
    read = plan.read_plan(training(experiment, stack))
    assert isinstance(read, Experiment)
    assert read.config.num_env_runners == expected


def test_the_stacks_number_is_the_payloads(
    training: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    folder = training("config: {num_workers: 13}", '{"config": {"num_env_runners": 5}}')
    command = plan.payload_command(folder, Path("/r"), None, 4, plan.read_plan(folder))
    # The payload reads the file, and the command line overrides it.
    (given,) = [json.loads(b) for a, b in itertools.pairwise(command) if a == "--config"]
    read = read_experiment(folder / "experiment.yaml", {"config": given})
    assert read.experiment.config.num_env_runners == 5


def test_a_training_follows_its_number_of_env_runners(
    training: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    folder = training("run: IMPALA")
    command = plan.payload_command(folder, Path("/r"), None, 4, plan.read_plan(folder))
    assert command[1:4] == ["-m", "payload", "train"]
    assert ("--env-runners", str(folder / "env_runners")) in itertools.pairwise(command)
    assert "--config" not in command


def test_a_driver_that_samples_follows_no_number(
    training: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    folder = training("config: {num_workers: 0}")
    command = plan.payload_command(folder, Path("/r"), None, 0, plan.read_plan(folder))
    assert "--env-runners" not in command


@pytest.mark.parametrize(
    ("asked", "options"),
    [("", []), ("num_workers: 6, ", ["--config", '{"num_env_runners": 4}'])],
)
def test_the_trials_of_a_search_share_the_cpus_unless_a_number_is_asked_for(
    training: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    options: list[str],
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    folder = training(f"config: {{{asked}lr: {{grid_search: [1e-3, 1e-4]}}}}")
    command = plan.payload_command(folder, Path("/r"), None, 4, plan.read_plan(folder))
    assert command[1:4] == ["-m", "payload", "tune"]
    assert "--env-runners" not in command
    assert command[command.index("auto") + 1 :] == options


def planned(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert plan.main(folder) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


@pytest.mark.parametrize(
    ("keys", "cpus", "gpus"),
    [("", 1, []), ("num_cpus: 6, num_gpus: 2", 6, [1.0, 1.0]), ("num_gpus: 0.5", 1, [0.5])],
)
def test_a_script_gets_the_cpus_and_gpus_that_it_names(
    training: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    keys: str,
    cpus: int,
    gpus: list[float],
) -> None:
    folder = training(f"{{entry_script: experiment.yaml, {keys}}}")
    answer = planned(folder, capsys)
    assert answer["script"]
    needs = Needs(**answer["needs"])
    assert [needs.gpus_per_learner] * needs.gpu_learners == gpus
    assert Room([Node(cpus, sum(gpus))]).take_least(needs)
    assert not Room([Node(cpus - 1, 9.0)]).take_least(needs)


def test_an_older_payload_that_knows_no_scripts_is_read(
    training: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(payload.experiment.file, "ENTRY_SCRIPT")
    monkeypatch.delitem(sys.modules, "payload.experiment.script", raising=False)
    assert plan.read_plan(training("run: PPO")).run == "PPO"  # type: ignore[union-attr]


def test_a_script_that_asks_for_workers_gets_all_their_cpus(
    training: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = cluster_settings(StackSettings.model_validate(REQUIRED), "set", "vm")
    monkeypatch.setattr(plan, "read_settings", lambda: settings)
    folder = training("{entry_script: experiment.yaml, num_workers: 2}")
    assert planned(folder, capsys)["needs"]["cpu_learners"] == 2 * settings.worker.cpus - 1


def test_another_name_or_other_files_have_other_runs(training: Callable[..., Path]) -> None:
    folder = training("run: IMPALA")
    key = plan.key_of("pong", "same", folder)
    assert re.fullmatch(r"pong-[0-9a-f]{12}", key)
    assert plan.key_of("other", "same", folder) != key
    assert plan.key_of("pong", "other", folder) != key
    (folder / "files.tar").write_bytes(b"source")
    assert plan.key_of("pong", "same", folder) != key


@pytest.mark.parametrize(
    ("experiment", "continues"),
    [
        ("run: IMPALA  # a comment", True),
        ("stop: {time_total_s: 7200}", True),
        ("config: {num_env_runners: 5}", True),
        ("config: {lr: 0.1}", False),
        ("config: {seed: 1}", False),
        ("run: APPO", False),
        ("env: ALE/Breakout-v5", False),
    ],
)
def test_a_run_continues_unless_something_else_is_learned(
    experiment: str,
    continues: bool,
    training: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    keys = []
    for text in ("run: IMPALA", experiment):
        assert plan.main(training(text)) == 0
        keys.append(json.loads(capsys.readouterr().out)["resume_key"])
    assert (keys[0] == keys[1]) == continues


# Which run


def make_run(results: Path, name: str, checkpoints: int = 1) -> Path:
    run = results / "runs" / name
    run.mkdir(parents=True)
    for number in range(checkpoints):
        (run / f"checkpoints/checkpoint_{number:06d}").mkdir(parents=True)
    return run


def test_a_new_experiment_resumes_nothing(tmp_path: Path) -> None:
    assert plan.run_to_resume(tmp_path) is None


def test_the_newest_run_with_a_checkpoint_is_resumed(tmp_path: Path) -> None:
    # Restored runs may have been written in any order.
    second = make_run(tmp_path, "IMPALA_Pong_2026-11-21_22-00-00")
    make_run(tmp_path, "IMPALA_Pong_2026-11-21_21-00-00")
    make_run(tmp_path, "IMPALA_Pong_2026-11-21_23-00-00", checkpoints=0)
    assert plan.run_to_resume(tmp_path) == second


def test_an_experiment_that_is_over_starts_a_new_run(tmp_path: Path) -> None:
    make_run(tmp_path, "IMPALA_Pong_2026-11-21_21-00-00")
    plan.finish_runs(tmp_path)
    assert plan.run_to_resume(tmp_path) is None
    # This also holds if the new run is interrupted before or after its first checkpoint.
    again = make_run(tmp_path, "IMPALA_Pong_2026-11-21_22-00-00", checkpoints=0)
    assert plan.run_to_resume(tmp_path) is None
    (again / "checkpoints/checkpoint_000001").mkdir(parents=True)
    assert plan.run_to_resume(tmp_path) == again


def test_a_search_is_resumed_also_before_its_first_checkpoint(tmp_path: Path) -> None:
    search = make_run(tmp_path, "tune_IMPALA_Pong_2026-11-21_21-00-00", checkpoints=0)
    (search / PLAN).write_text("{}")
    assert plan.run_to_resume(tmp_path) == search
    plan.finish_runs(tmp_path)
    assert plan.run_to_resume(tmp_path) is None


def test_the_run_to_resume_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    run = make_run(tmp_path, "IMPALA_Pong_2026-11-21_21-00-00")
    command = plan.payload_command(tmp_path, tmp_path, run, 1, Experiment())
    assert command[-2:] == ["--resume", str(run)]
