"""A run in a real MLflow database: what arrives there, and what happens while it is unreachable."""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

import payload.tracking.mlflow_run
from payload.experiment.settings import Experiment
from payload.run.run_folder import RunFolder
from payload.tracking.metrics import STEPS
from payload.tracking.mlflow_experiment import EXPERIMENT_NAME
from payload.tracking.mlflow_run import (
    MLflowRun,
    Status,
    Tracking,
    make_database,
)
from payload.tracking.run_parameters import flatten

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an MLflow database, which takes seconds to make."""
    folder = tmp_path_factory.mktemp("results")
    run = MLflowRun(Tracking.embedded(folder, "first"))
    run.close("FINISHED")
    return folder


@pytest.fixture(scope="module")
def client(results: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{results}/mlflow.db")


@pytest.fixture
def make_run(results: Path) -> Callable[..., MLflowRun]:
    """Makes a run in the database, or continues one."""

    def make(run_id: str | None = None, **options: Any) -> MLflowRun:
        return MLflowRun(Tracking.embedded(results, "run", run_id), **options)

    return make


@pytest.fixture
def run(make_run: Callable[..., MLflowRun]) -> MLflowRun:
    return make_run()


@pytest.fixture
def delivered(client: MlflowClient) -> Callable[..., Run]:
    """Ends a run and returns it as MLflow has recorded it."""

    def deliver(run: MLflowRun, status: Status = "FINISHED") -> Run:
        run.close(status)
        assert run.problem is None
        return client.get_run(run.run_id)

    return deliver


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server that does not answer."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # Bound, but nobody listens.
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def lost(away: str) -> MLflowRun:
    """A run on a server that does not answer."""
    return MLflowRun(Tracking(away, None, "run"))


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of metrics in each request from now on."""
    batches: list[int] = []
    log_batch = MlflowClient.log_batch

    def counting(self: MlflowClient, *arguments: Any, **named: Any) -> Any:
        batches.append(len(named["metrics"]))
        return log_batch(self, *arguments, **named)

    monkeypatch.setattr(MlflowClient, "log_batch", counting)
    return batches


def eventually(condition: Callable[[], object], timeout_s: float = 20.0) -> bool:
    """Waits until a condition holds; returns whether it does."""
    end = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


# What arrives


def test_metrics_lie_on_the_axis_of_env_steps(
    run: MLflowRun, client: MlflowClient, delivered: Callable[..., Run]
) -> None:
    run.log_metrics({"entropy": 1.5}, env_steps=1000)
    run.log_metrics({"entropy": 1.25}, env_steps=2000)
    history = client.get_metric_history(delivered(run).info.run_id, "entropy")
    assert [(point.step, point.value) for point in history] == [(1000, 1.5), (2000, 1.25)]


def test_metrics_have_the_time_at_which_they_were_logged(
    run: MLflowRun, client: MlflowClient, delivered: Callable[..., Run]
) -> None:
    before = int(time.time() * 1000)
    run.log_metrics({"entropy": 1.5}, env_steps=1000)
    logged = int(time.time() * 1000)
    (point,) = client.get_metric_history(delivered(run).info.run_id, "entropy")
    assert before <= point.timestamp <= logged


def test_the_metrics_of_an_iteration_travel_together(
    run: MLflowRun, delivered: Callable[..., Run], batches: list[int]
) -> None:
    run.log_metrics({f"metric_{i}": float(i) for i in range(30)}, env_steps=1000)
    delivered(run)
    assert batches == [30]


def test_a_parameter_is_text(run: MLflowRun, delivered: Callable[..., Run]) -> None:
    run.log_params({"config.lr": 0.0006, "config.seed": None})
    assert delivered(run).data.params == {"config.lr": "0.0006", "config.seed": "None"}


def test_a_parameter_too_long_for_mlflow_is_cut(
    run: MLflowRun, delivered: Callable[..., Run]
) -> None:
    run.log_params({"config.env_config": "x" * 10_000})
    assert delivered(run).data.params == {"config.env_config": "x" * 6000}


def test_a_run_has_its_name(run: MLflowRun, delivered: Callable[..., Run]) -> None:
    assert delivered(run).info.run_name == "run"


def test_all_runs_are_in_one_experiment(
    run: MLflowRun, client: MlflowClient, delivered: Callable[..., Run]
) -> None:
    experiment = client.get_experiment_by_name(EXPERIMENT_NAME)
    assert experiment is not None
    assert delivered(run).info.experiment_id == experiment.experiment_id


def test_a_run_is_in_the_experiment_that_it_names(
    results: Path, client: MlflowClient, delivered: Callable[..., Run]
) -> None:
    tracking = Tracking.embedded(results, "run").of(Experiment(experiment_name="mine"))
    tracked = delivered(MLflowRun(tracking))
    assert client.get_experiment_by_name("mine").experiment_id == tracked.info.experiment_id


def test_a_trial_waits_until_the_run_of_its_search_is_known(
    results: Path,
    tmp_path: Path,
    client: MlflowClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(payload.tracking.mlflow_run, "RETRY_S", 0.1)
    search = RunFolder(tmp_path)
    tracking = replace(Tracking.embedded(results, "trial"), parent_file=search.mlflow_run_file)
    trial = MLflowRun(tracking)
    trial.start()
    time.sleep(0.5)
    assert trial.run_id is None
    search.remember_mlflow_run("0" * 32, tracking.uri)
    trial.close("FINISHED")
    assert client.get_run(trial.run_id).data.tags["mlflow.parentRunId"] == "0" * 32


def test_a_file_becomes_an_artifact(
    run: MLflowRun, client: MlflowClient, delivered: Callable[..., Run], tmp_path: Path
) -> None:
    (tmp_path / "curve.png").write_bytes(b"picture")
    run.log_artifact(tmp_path / "curve.png")
    artifacts = client.list_artifacts(delivered(run).info.run_id)
    assert [artifact.path for artifact in artifacts] == ["curve.png"]


def test_a_folders_files_become_artifacts_of_a_folder(
    run: MLflowRun, client: MlflowClient, delivered: Callable[..., Run], tmp_path: Path
) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "weights").write_bytes(b"learned")
    run.log_artifact(tmp_path / "checkpoint", "checkpoints/best")
    artifacts = client.list_artifacts(delivered(run).info.run_id, "checkpoints/best")
    assert [artifact.path for artifact in artifacts] == ["checkpoints/best/weights"]


def test_artifacts_of_an_embedded_database_lie_in_the_results(
    run: MLflowRun, results: Path, delivered: Callable[..., Run], tmp_path: Path
) -> None:
    (tmp_path / "curve.png").write_bytes(b"picture")
    run.log_artifact(tmp_path / "curve.png")
    run_id = delivered(run).info.run_id
    assert [p.parts[-3] for p in (results / "mlartifacts").rglob(f"{run_id}/artifacts/*")] == [
        run_id
    ]


def test_a_file_that_is_gone_by_then_is_left_out(
    run: MLflowRun, client: MlflowClient, delivered: Callable[..., Run], tmp_path: Path
) -> None:
    run.log_artifact(tmp_path / "gone")
    assert client.list_artifacts(delivered(run).info.run_id) == []


@pytest.mark.parametrize("status", ["FINISHED", "FAILED", "KILLED"])
def test_a_run_ends_with_the_status_it_had(
    run: MLflowRun, delivered: Callable[..., Run], status: Status
) -> None:
    assert delivered(run, status).info.status == status


def test_a_run_that_continues_is_running(run: MLflowRun, client: MlflowClient) -> None:
    run.start()
    assert eventually(lambda: run.run_id)
    try:
        assert client.get_run(run.run_id or "").info.status == "RUNNING"
    finally:
        run.close("FINISHED")


def test_the_id_is_told_once_it_is_known(make_run: Callable[..., MLflowRun]) -> None:
    told: list[str] = []
    run = make_run(on_start=told.append)
    run.close("FINISHED")
    assert told == [run.run_id]


def test_what_mlflow_refuses_holds_up_nothing_else(
    run: MLflowRun, client: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload.tracking.mlflow_run, "RETRY_S", 0.1)
    run.log_params({"config.env_config.what?": 1})
    run.log_metrics({"entropy": 1.5}, env_steps=1000)
    run.close("FINISHED", timeout_s=5)
    assert client.get_run(run.run_id or "").data.metrics == {"entropy": 1.5}


# A resumed run


@pytest.fixture
def ended(make_run: Callable[..., MLflowRun]) -> str:
    """The id of a run that was killed after its first iteration."""
    run = make_run()
    run.log_params({"config.seed": 1})
    run.log_metrics({"num_env_steps_sampled_lifetime": 1000, "entropy": 1.5}, env_steps=1000)
    run.close("KILLED")
    assert run.run_id is not None
    return run.run_id


def test_a_resumed_run_continues_in_the_same_mlflow_run(
    make_run: Callable[..., MLflowRun],
    ended: str,
    client: MlflowClient,
    delivered: Callable[..., Run],
) -> None:
    run = make_run(ended)
    run.log_metrics({"entropy": 1.25}, env_steps=2000)
    delivered(run)
    assert [point.step for point in client.get_metric_history(ended, "entropy")] == [1000, 2000]


def test_a_resumed_run_delivers_what_the_one_before_could_not_and_nothing_twice(
    make_run: Callable[..., MLflowRun],
    ended: str,
    client: MlflowClient,
    delivered: Callable[..., Run],
) -> None:
    run = make_run(ended)
    run.log_metrics({STEPS: 2000}, 2000)
    run.log_recorded(lambda: ((steps, {STEPS: steps}) for steps in (500, 1000, 1500)))
    run.log_metrics({STEPS: 2500}, 2500)
    delivered(run)
    history = client.get_metric_history(ended, STEPS)
    assert [point.step for point in history] == [1000, 1500, 2000, 2500]


def test_what_is_recorded_is_in_memory_only_where_mlflow_lacks_it(
    make_run: Callable[..., MLflowRun], ended: str
) -> None:
    run = make_run(ended)
    read: list[int] = []

    def recorded() -> Iterator[tuple[int, dict[str, float]]]:
        for steps in range(10, 1001, 10):
            read.append(steps)
            yield steps, {STEPS: steps}

    run.log_recorded(recorded)
    assert not read
    run.start()
    assert eventually(lambda: run.run_id is not None and len(read) == 100)
    assert not run._outbox.points
    run.close("FINISHED")
    assert len(read) == 100


def test_what_is_recorded_is_kept_where_mlflow_never_answers(away: str, tmp_path: Path) -> None:
    file = tmp_path / "undelivered.json"
    run = MLflowRun(Tracking(away, None, "run", undelivered=file))
    run.log_recorded(lambda: [(1000, {"entropy": 1.5})])
    run.log_metrics({"entropy": 1.25}, 2000)
    run.close("FAILED", timeout_s=0)
    points = json.loads(file.read_text())["points"]
    assert [(name, value, steps) for name, value, steps, _ in points] == [
        ("entropy", 1.5, 1000),
        ("entropy", 1.25, 2000),
    ]


def test_a_resumed_run_has_its_own_end(
    make_run: Callable[..., MLflowRun], ended: str, delivered: Callable[..., Run]
) -> None:
    assert delivered(make_run(ended), "FINISHED").info.status == "FINISHED"


def test_a_resumed_run_keeps_its_first_parameters(
    make_run: Callable[..., MLflowRun], ended: str, delivered: Callable[..., Run]
) -> None:
    run = make_run(ended)
    run.log_params({"config.seed": 2, "config.lr": 0.1})
    assert delivered(run).data.params == {"config.seed": "1", "config.lr": "0.1"}


# Deleted in MLflow's pages while it trains


@pytest.fixture
def own(tmp_path: Path, results: Path) -> Path:
    """Results with a database of their own."""
    shutil.copy(results / "mlflow.db", tmp_path)
    return tmp_path


@pytest.fixture
def told() -> list[str]:
    """What the runs of a test have said."""
    return []


@pytest.fixture
def start(own: Path, told: list[str]) -> Callable[..., MLflowRun]:
    """Starts a run that has logged an iteration, or continues one."""

    def start(run_id: str | None = None) -> MLflowRun:
        run = MLflowRun(Tracking.embedded(own, "run", run_id), say=told.append)
        run.log_metrics({"entropy": 1.5}, env_steps=1000)
        run.start()
        assert eventually(lambda: run.delivered)
        return run

    return start


def test_a_run_whose_experiment_is_deleted_brings_it_back_and_says_so(
    start: Callable[..., MLflowRun], told: list[str]
) -> None:
    run = start()
    client = MlflowClient(run.tracking.uri)
    experiment = client.get_experiment_by_name(EXPERIMENT_NAME)
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    run.log_metrics({"entropy": 1.25}, env_steps=2000)
    run.close("FINISHED")
    # Only it: whoever deleted the other runs meant them.
    (tracked,) = client.search_runs([experiment.experiment_id])
    assert tracked.info.run_id == run.run_id
    assert tracked.info.status == "FINISHED"
    history = client.get_metric_history(run.run_id or "", "entropy")
    assert [point.step for point in history] == [1000, 2000]
    assert told == [
        "MLflow's experiment volley was deleted: restored for the runs that train",
        f"MLflow's run {run.run_id} was deleted: restored, because it is still training",
    ]


def test_a_run_that_is_deleted_comes_back(start: Callable[..., MLflowRun], told: list[str]) -> None:
    run = start()
    client = MlflowClient(run.tracking.uri)
    client.delete_run(run.run_id or "")
    run.close("KILLED")
    tracked = client.get_run(run.run_id or "").info
    assert (tracked.lifecycle_stage, tracked.status) == ("active", "KILLED")
    assert len(told) == 1


def test_after_the_experiment_was_deleted_a_new_run_has_it_for_itself(
    own: Path, start: Callable[..., MLflowRun], told: list[str]
) -> None:
    client = MlflowClient(Tracking.embedded(own, "").uri)
    experiment = client.get_experiment_by_name(EXPERIMENT_NAME)
    assert experiment is not None
    client.delete_experiment(experiment.experiment_id)
    run = start()
    run.close("FINISHED")
    (tracked,) = client.search_runs([experiment.experiment_id])
    assert tracked.info.run_id == run.run_id
    assert told == ["MLflow's experiment volley was deleted: restored for the runs that train"]


def test_a_run_that_was_removed_for_good_continues_in_a_new_one(
    start: Callable[..., MLflowRun], told: list[str]
) -> None:
    removed = "0" * 32
    run = start(removed)
    run.close("FINISHED")
    assert run.run_id != removed
    assert MlflowClient(run.tracking.uri).get_run(run.run_id or "").data.metrics["entropy"] == 1.5
    assert told == [f"MLflow no longer has run {removed}: the training continues in a new one"]


def test_a_run_removed_for_good_while_it_trains_continues_in_a_new_one(
    own: Path, start: Callable[..., MLflowRun], told: list[str]
) -> None:
    run = start()
    removed = run.run_id
    with closing(sqlite3.connect(own / "mlflow.db")) as database, database:
        for table in ("metrics", "latest_metrics", "tags", "params"):
            database.execute(f"DELETE FROM {table} WHERE run_uuid = ?", [removed])
        database.execute("DELETE FROM runs WHERE run_uuid = ?", [removed])
    run.log_metrics({"entropy": 1.25}, env_steps=2000)
    run.close("FINISHED")
    assert run.run_id != removed
    tracked = MlflowClient(run.tracking.uri).get_run(run.run_id or "")
    assert (tracked.info.status, tracked.data.metrics) == ("FINISHED", {"entropy": 1.25})
    assert len(told) == 1


# While the server is away


def test_logging_never_waits(lost: MLflowRun) -> None:
    lost.start()
    assert eventually(lambda: lost.problem)
    seconds = []
    for step in range(200):
        before = time.perf_counter()
        lost.log_metrics({"entropy": 1.5}, env_steps=step)
        seconds.append(time.perf_counter() - before)
    lost.close("FINISHED", timeout_s=0)
    assert statistics.median(seconds) < 0.005


def test_the_problem_is_told_in_one_line(lost: MLflowRun) -> None:
    lost.start()
    eventually(lambda: lost.problem)
    problem = lost.problem
    lost.close("FINISHED", timeout_s=0)
    assert problem is not None
    assert len(problem.splitlines()) == 1


def test_closing_waits_no_longer_than_it_may(lost: MLflowRun) -> None:
    before = time.monotonic()
    lost.close("FINISHED", timeout_s=0.5)
    assert time.monotonic() - before < 5


def test_deliveries_are_repeated_until_mlflow_is_back(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload.tracking.mlflow_run, "RETRY_S", 0.1)
    place = tmp_path / "disk"
    place.touch()  # A file where the database's folder will be.
    run = MLflowRun(Tracking.embedded(place, "run"))
    run.log_metrics({"entropy": 1.5}, env_steps=1000)
    run.start()
    assert eventually(lambda: run.problem)
    place.unlink()
    place.mkdir()
    shutil.copy(results / "mlflow.db", place)
    run.close("FINISHED")
    data = MlflowClient(run.tracking.uri).get_run(run.run_id or "").data
    assert data.metrics == {"entropy": 1.5}


def test_what_has_waited_travels_in_as_few_requests_as_mlflow_allows(
    run: MLflowRun, delivered: Callable[..., Run], batches: list[int]
) -> None:
    for step in range(60):
        run.log_metrics({f"metric_{i}": float(i) for i in range(20)}, env_steps=step)
    delivered(run)
    assert batches == [1000, 200]


def test_a_run_that_mlflow_has_back_has_no_problem(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(payload.tracking.mlflow_run, "RETRY_S", 0.1)
    place = tmp_path / "disk"
    place.touch()
    run = MLflowRun(Tracking.embedded(place, "run"))
    run.start()
    assert eventually(lambda: run.problem)
    place.unlink()
    place.mkdir()
    shutil.copy(results / "mlflow.db", place)
    run.close("FINISHED")
    assert run.problem is None


# Parameters are flat


def test_nested_settings_become_dotted_names() -> None:
    nested = {"config": {"lr": 0.1, "env_config": {"noop_max": 5}}, "run": "IMPALA"}
    assert dict(flatten(nested)) == {
        "config.lr": 0.1,
        "config.env_config.noop_max": 5,
        "run": "IMPALA",
    }


def test_an_empty_mapping_is_a_value() -> None:
    assert dict(flatten({"env_config": {}})) == {"env_config": {}}


def test_a_database_that_was_being_made_when_the_power_went_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PowerCutError(Exception):
        pass

    def cut(*_: object, **__: object) -> None:
        raise PowerCutError

    database = tmp_path / "mlflow.db"
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "search_experiments", cut)
        with pytest.raises(PowerCutError):
            make_database(database)
    assert not database.exists()
    make_database(database)
    assert MlflowClient(f"sqlite:///{database}").search_experiments()
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]


def test_of_two_databases_made_at_once_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "mlflow.db"
    copy = shutil.copyfile

    def make_the_other_first(source: Path, target: Path) -> None:
        database.write_text("the other run's")
        copy(source, target)

    monkeypatch.setattr("payload.tracking.mlflow_run.shutil.copyfile", make_the_other_first)
    make_database(database)
    assert database.read_text() == "the other run's"
