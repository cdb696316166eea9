"""A tiny search as a user types it: interrupted, cut off, resumed to its end."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run
from ray.util.placement_group import placement_group, remove_placement_group

from payload.experiment.read import read_experiment
from payload.run.driver_lock import LOCK
from payload.run.run_folder import RUNS
from payload.run.run_status import RunStatus
from payload.search.search_folder import SearchFolder, status_file
from payload.tracking.metrics import ITERATION, STEPS
from payload.tracking.mlflow_run import DATABASE
from tests.local_ray import CPUS
from tests.payload.command_line import (
    in_process,
    tracked_runs,
    wait_for,
    with_database,
)
from tests.payload.event_files import curves

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_here")]

ITERATIONS = 10
EXPERIMENT = f"""
run: PPO
# An iteration takes half a second, in which it waits. All processes import it as the tests do.
env: tests.payload.slow_environment.slow:Slow-v0
config:
  # A trial takes one CPU.
  num_env_runners: 0
  lr: {{grid_search: [1e-3, 1e-4]}}
  train_batch_size_per_learner: 50
  minibatch_size: 50
  num_epochs: 1
  min_time_s_per_iteration: 0
stop:
  training_iteration: {ITERATIONS}
tensorboard: true
"""
TRIALS = ["trial_000", "trial_001"]
TRIAL_S = 240.0
"""Time that a trial may take to start and to end on a busy machine."""


@dataclass(frozen=True)
class Searched:
    """A search that was cut off in its second trial and resumed.

    Ctrl-C also stopped it a moment later, but the resume starts from the state at the cut-off.
    """

    folder: Path
    search: SearchFolder
    first_trial: list[list[str]]
    """Progress of the finished first trial, at the cut-off."""
    run_ids: list[str]
    """MLflow run ids of the trials, at the cut-off."""
    at_sigint: int
    """Exit code after Ctrl-C."""
    lost_at_sigint: int
    """Iterations of the second trial that no checkpoint had after Ctrl-C."""
    output: str
    """Output of the last command."""

    @property
    def tracking_uri(self) -> str:
        return f"sqlite:///{self.folder}/results/mlflow.db"


@contextmanager
def one_cpu() -> Iterator[None]:
    """Reserves all of Ray's CPUs but one, so that trials train one after the other."""
    others = placement_group([{"CPU": CPUS - 1}])
    try:
        assert others.wait(TRIAL_S)
        yield
    finally:
        remove_placement_group(others)


def copy_cut_off(results: Path, copy: Path, trial: Path) -> None:
    """Copies results as they are left if all processes of a search are killed at once.

    Args:
        trial: The folder of the trial that is training.
    """
    # MLflow lags behind the files, by what the trial has not sent yet.
    copy_database(results, copy)
    _, process = (trial / LOCK).read_text().split()
    os.kill(int(process), signal.SIGSTOP)
    # Tune is still writing its files, but nothing reads them.
    but_tune = shutil.ignore_patterns(".tune")
    shutil.copytree(results / RUNS, copy / RUNS, symlinks=True, ignore=but_tune)
    os.kill(int(process), signal.SIGCONT)


def put_back(copy: Path, results: Path) -> None:
    shutil.rmtree(results / RUNS)
    (copy / RUNS).rename(results / RUNS)
    copy_database(copy, results)


def copy_database(source: Path, target: Path) -> None:
    """Writes into the existing file: this process's MLflow keeps connections to it."""
    with (
        closing(sqlite3.connect(source / DATABASE)) as read,
        closing(sqlite3.connect(target / DATABASE)) as written,
    ):
        read.backup(written)


def rows(search: SearchFolder, name: str) -> list[list[str]]:
    path = search.trial(name).progress_file
    if not path.exists():
        return []
    with path.open() as file:
        return list(csv.reader(file))


def column(search: SearchFolder, name: str, metric: str) -> list[int]:
    header, *values = rows(search, name)
    return [int(float(row[header.index(metric)])) for row in values]


def saved(search: SearchFolder, name: str) -> int:
    """Returns the number of a trial's checkpoints."""
    return len(search.trial(name).checkpoints().newest_first())


def is_over(search: SearchFolder, name: str) -> bool:
    file = status_file(search.trial(name))
    return file.exists() and RunStatus.read(file).state == "FINISHED"


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    folder = with_database(tmp_path_factory.mktemp("searched"))
    results, copy = folder / "results", tmp_path_factory.mktemp("copy")
    (folder / "grid.yaml").write_text(EXPERIMENT)
    first, second = TRIALS

    def folder_of_search() -> SearchFolder:
        (plan,) = folder.glob("results/runs/*/search.json")
        return SearchFolder(plan.parent)

    def copy_and_press_ctrl_c(_: Path) -> None:
        wait_for(lambda: list(folder.glob("results/runs/*/search.json")), TRIAL_S)
        search = folder_of_search()
        wait_for(lambda: is_over(search, first), TRIAL_S)
        wait_for(lambda: saved(search, second), TRIAL_S)
        copy_cut_off(results, copy, search.trial(second).path)
        os.kill(os.getpid(), signal.SIGINT)

    with one_cpu():
        tune = ("tune", "grid.yaml", "--checkpoint-every", "1")
        interrupted = in_process(folder, *tune, meanwhile=copy_and_press_ctrl_c)
    search = folder_of_search()
    newest = search.trial(second).checkpoints().newest_first()[0].progress().iteration
    lost = column(search, second, ITERATION)[-1] - newest
    put_back(copy, results)
    over = rows(search, first)
    files = [search.trial(name).mlflow_run_file for name in TRIALS]
    # A trial that was cut off early does not know its run's id yet.
    known = [json.loads(file.read_text()) for file in files if file.exists()]
    run_ids = [run["run_id"] for run in known if "run_id" in run]
    done = in_process(folder, "tune", "--resume")
    assert done.returncode == 0, done.stdout + done.stderr
    return Searched(folder, search, over, run_ids, interrupted.returncode, lost, done.stdout)


@pytest.fixture(scope="module")
def runs(searched: Searched) -> dict[str, Run]:
    """The MLflow runs of the search, by their names."""
    return {run.info.run_name: run for run in tracked_runs(searched.tracking_uri)}


def test_a_trial_that_was_over_is_not_run_again(searched: Searched) -> None:
    assert rows(searched.search, TRIALS[0]) == searched.first_trial


def test_a_trial_that_was_cut_off_continues_from_its_checkpoint(searched: Searched) -> None:
    assert column(searched.search, TRIALS[1], ITERATION) == list(range(1, ITERATIONS + 1))
    steps = column(searched.search, TRIALS[1], STEPS)
    assert steps == sorted(set(steps))


def test_ctrl_c_is_the_exit_code(searched: Searched) -> None:
    assert searched.at_sigint == 130


def test_ctrl_c_costs_no_iteration_of_a_trial(searched: Searched) -> None:
    assert searched.lost_at_sigint == 0


def test_each_trial_is_one_mlflow_run_within_that_of_the_search(
    searched: Searched, runs: dict[str, Run]
) -> None:
    parent = runs[searched.search.path.name]
    trials = {name: run for name, run in runs.items() if name != parent.info.run_name}
    parents = {name: run.data.tags["mlflow.parentRunId"] for name, run in trials.items()}
    assert parents == dict.fromkeys(TRIALS, parent.info.run_id)
    assert {run.info.status for run in runs.values()} == {"FINISHED"}
    assert set(searched.run_ids) <= {run.info.run_id for run in trials.values()}


def test_mlflow_has_the_setting_of_each_trial(runs: dict[str, Run]) -> None:
    assert [runs[name].data.params["config.lr"] for name in TRIALS] == ["0.001", "0.0001"]


def test_metrics_of_a_trial_lie_on_the_axis_of_environment_steps(
    searched: Searched, runs: dict[str, Run]
) -> None:
    client = MlflowClient(searched.tracking_uri)
    points = client.get_metric_history(runs[TRIALS[0]].info.run_id, ITERATION)
    assert [point.step for point in points] == column(searched.search, TRIALS[0], STEPS)


def test_event_files_of_a_trial_that_was_cut_off_have_no_step_twice(searched: Searched) -> None:
    points = curves(searched.search.trial(TRIALS[1]).path)[ITERATION]
    assert [step for step, _ in points] == column(searched.search, TRIALS[1], STEPS)
    assert [iteration for _, iteration in points] == list(range(1, ITERATIONS + 1))


def test_the_search_ends_with_a_table_a_picture_and_the_best_setting(searched: Searched) -> None:
    search = searched.search
    with search.table_file.open() as file:
        table = list(csv.DictReader(file))
    assert [row["rank"] for row in table] == ["1", "2"]
    assert {row["reason"] for row in table} == {f"limit of {ITERATIONS} iterations reached"}
    assert search.picture.read_bytes().startswith(b"\x89PNG")
    assert f"Best setting     lr={table[0]['lr']}" in searched.output
    assert not search.tune.exists()


def test_the_best_setting_is_an_experiment_without_a_search(searched: Searched) -> None:
    best = read_experiment(searched.search.best_file).experiment
    assert best.search == {}
    assert f"Best setting     lr={best.config.model_dump()['lr']:g}" in searched.output


def test_a_resumed_search_stays_what_it_was(searched: Searched) -> None:
    refused: list[tuple[tuple[str, ...], str]] = [
        (("--seeds", "2"), "--samples and --seeds cannot change"),
        (("--config", '{"lr": {"grid_search": [1, 2]}}'), "config.lr is"),
    ]
    for options, words in refused:
        done = in_process(searched.folder, "tune", "--resume", *options)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_a_search_without_effect_is_refused(tmp_path: Path) -> None:
    config = '{"image_size": {"choice": [42, 84]}}'
    done = in_process(tmp_path, "tune", "--env", "CartPole-v1", "--config", config)
    assert (done.returncode, done.stdout) == (2, "")
    assert "config.image_size: cannot be searched" in done.stderr
    assert not list(tmp_path.iterdir())
