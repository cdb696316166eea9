"""A run's driver: only one at a time, and what MLflow shows when it is gone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mlflow import MlflowClient

import payload.run.driver_lock
from payload.errors import TemporaryError, UserError
from payload.run.driver_lock import LOCK, driver_lock, mark_dead_runs
from payload.run.run_folder import RunFolder
from payload.tracking.mlflow_run import MLflowRun, Tracking

pytestmark = pytest.mark.slow

DRIVER = """
import sys, time
from pathlib import Path
from payload.run.driver_lock import driver_lock
from payload.run.run_folder import RunFolder
with driver_lock(RunFolder(Path(sys.argv[1]))):
    print("holds it", flush=True)
    time.sleep(600)
"""


@contextmanager
def driver(folder: RunFolder) -> Iterator[subprocess.Popen[str]]:
    """Starts another process as the driver of a run, and kills it at the end."""
    command = [sys.executable, "-c", DRIVER, str(folder.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("results")


@pytest.fixture
def make_run(results: Path) -> Callable[[str], tuple[RunFolder, str]]:
    """Makes a run's folder and its MLflow run, which is RUNNING; returns it and the run's id."""

    def make(name: str) -> tuple[RunFolder, str]:
        folder = RunFolder(results / "runs" / name)
        folder.path.mkdir(parents=True)
        tracking = Tracking.embedded(results, name)
        run = MLflowRun(tracking)
        run.close("FINISHED")
        assert run.run_id is not None
        MlflowClient(tracking.uri).update_run(run.run_id, "RUNNING")
        folder.remember_mlflow_run(run.run_id, tracking.uri)
        return folder, run.run_id

    return make


def status(results: Path, run_id: str) -> str:
    return str(MlflowClient(f"sqlite:///{results}/mlflow.db").get_run(run_id).info.status)


def test_a_run_has_one_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload.run.driver_lock, "RETRY_FOR_S", 0.1)
    folder = RunFolder(tmp_path)
    with driver(folder) as other:
        line = f"process {other.pid} on {socket.gethostname()} is running it"
        with pytest.raises(UserError, match=line), driver_lock(folder):
            pytest.fail("two drivers at once")


def test_a_job_waits_for_the_driver_of_an_earlier_one_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload.run.driver_lock, "RETRY_FOR_S", 0.2)
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    folder = RunFolder(tmp_path)
    with driver(folder), pytest.raises(TemporaryError, match="is running it"), driver_lock(folder):
        pass


def test_a_run_whose_driver_was_killed_can_have_another(tmp_path: Path) -> None:
    with driver(RunFolder(tmp_path)):
        pass
    with driver_lock(RunFolder(tmp_path)):
        pass


def test_a_run_whose_driver_was_killed_becomes_killed(
    results: Path, make_run: Callable[[str], tuple[RunFolder, str]]
) -> None:
    folder, run_id = make_run("power-cut")
    with driver(folder):
        pass
    (line,) = mark_dead_runs(results)
    assert line.startswith(f"Run {folder.path} ended unexpectedly at ")
    assert line.endswith("; marked KILLED in MLflow")
    assert status(results, run_id) == "KILLED"


def test_a_dead_run_can_be_resumed_while_mlflow_does_not_answer(
    results: Path,
    make_run: Callable[[str], tuple[RunFolder, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, _ = make_run("hung-server")
    with driver(folder):
        pass

    def end_run(*_: object) -> bool:
        with driver_lock(folder):  # It raises if somebody has the lock.
            return True

    monkeypatch.setattr("payload.run.driver_lock.end_run", end_run)
    assert len(list(mark_dead_runs(results))) == 1


def test_a_run_killed_after_its_end_is_not_marked(
    results: Path, make_run: Callable[[str], tuple[RunFolder, str]]
) -> None:
    folder, run_id = make_run("undelivered")
    with driver(folder):
        pass
    folder.undelivered_file.write_text("{}")  # It has the status that MLflow has yet to receive.
    assert list(mark_dead_runs(results)) == []
    assert status(results, run_id) == "RUNNING"


def test_trials_of_a_search_whose_driver_was_killed_become_killed(
    results: Path, make_run: Callable[[str], tuple[RunFolder, str]]
) -> None:
    folder, run_id = make_run("search/trial_000")
    with driver(folder):
        pass
    list(mark_dead_runs(results))
    assert status(results, run_id) == "KILLED"


def test_a_run_of_a_server_whose_driver_was_killed_becomes_killed(tmp_path: Path) -> None:
    server, folder = f"sqlite:///{tmp_path}/server.db", RunFolder(tmp_path / "results/runs/run")
    folder.path.mkdir(parents=True)
    run = MLflowRun(Tracking(server, tmp_path / "artifacts", "run"))
    run.close("FINISHED")
    assert run.run_id is not None
    client = MlflowClient(server)
    client.update_run(run.run_id, status="RUNNING")
    folder.remember_mlflow_run(run.run_id, server)
    with driver(folder):
        pass
    (line,) = mark_dead_runs(tmp_path / "results", server)
    assert line.endswith("; marked KILLED in MLflow")
    assert client.get_run(run.run_id).info.status == "KILLED"


def test_a_run_that_was_cut_off_ended_at_its_last_sign_of_life(
    results: Path, make_run: Callable[[str], tuple[RunFolder, str]]
) -> None:
    folder, run_id = make_run("long-ago")
    with driver(folder):
        pass
    for file in folder.path.iterdir():
        os.utime(file, (1_700_000_000, 1_700_000_000))
    list(mark_dead_runs(results))
    run = MlflowClient(f"sqlite:///{results}/mlflow.db").get_run(run_id)
    assert run.info.end_time == 1_700_000_000_000


def test_a_run_whose_driver_is_alive_stays_as_it_is(
    results: Path, make_run: Callable[[str], tuple[RunFolder, str]]
) -> None:
    folder, run_id = make_run("alive")
    with driver(folder):
        list(mark_dead_runs(results))
        assert status(results, run_id) == "RUNNING"


def test_a_run_whose_driver_was_on_another_host_stays_as_it_is(
    results: Path, make_run: Callable[[str], tuple[RunFolder, str]]
) -> None:
    folder, run_id = make_run("elsewhere")
    (folder.path / LOCK).write_text("another-host 1234")
    list(mark_dead_runs(results))
    assert status(results, run_id) == "RUNNING"


def test_a_run_that_ended_in_order_is_none_to_mark(
    results: Path, make_run: Callable[[str], tuple[RunFolder, str]]
) -> None:
    folder, run_id = make_run("ended")
    with driver_lock(folder):
        pass
    list(mark_dead_runs(results))
    assert status(results, run_id) == "RUNNING"


@pytest.fixture
def cut_off(tmp_path: Path) -> RunFolder:
    """A run whose MLflow run is in no database."""
    folder = RunFolder(tmp_path / "runs" / "run")
    folder.path.mkdir(parents=True)
    folder.remember_mlflow_run("0" * 32, Tracking.embedded(tmp_path, "run").uri)
    with driver(folder):
        pass
    return folder


def test_a_database_that_cannot_be_asked_keeps_nobody_from_training(
    cut_off: RunFolder, tmp_path: Path
) -> None:
    (tmp_path / "mlflow.db").write_text("not a database")
    (line,) = mark_dead_runs(tmp_path)
    assert line.startswith(f"Run {cut_off.path} ended unexpectedly; MLflow: ")


@pytest.mark.usefixtures("cut_off")
def test_a_database_that_was_removed_is_not_created_again(tmp_path: Path) -> None:
    assert not list(mark_dead_runs(tmp_path))
    assert not (tmp_path / "mlflow.db").exists()


def test_a_run_that_the_database_does_not_know_is_not_reported(
    results: Path, make_run: Callable[[str], tuple[RunFolder, str]]
) -> None:
    folder, _ = make_run("removed")
    folder.remember_mlflow_run("0" * 32, Tracking.embedded(results, "removed").uri)
    with driver(folder):
        pass
    assert not [line for line in mark_dead_runs(results) if str(folder.path) in line]
