"""What MLflow does not receive before a run ends arrives later: once, with its own time."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

import payload.tracking.mlflow_run
from payload.run.driver_lock import driver_lock
from payload.run.run_folder import RunFolder
from payload.run.undelivered import deliver
from payload.tracking.metrics import STEPS
from payload.tracking.mlflow_experiment import EXPERIMENT_NAME, KEY
from payload.tracking.mlflow_run import MLflowRun, Status
from payload.tracking.script_runs import SUBMISSION, write_end
from tests.chaos.faulty_proxy import FaultyProxy, faulty_mlflow
from tests.payload.command_line import wait_for

pytestmark = pytest.mark.slow

ARTIFACTS = "mlflow-artifacts"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyProxy]:
    with faulty_mlflow(tmp_path_factory.mktemp("server")) as proxy:
        # What MLflow's client imports late takes seconds.
        MlflowClient(proxy.address).create_experiment(EXPERIMENT_NAME)
        yield proxy


@pytest.fixture
def proxy(server: FaultyProxy, monkeypatch: pytest.MonkeyPatch) -> FaultyProxy:
    """A server that answers until a test says otherwise."""
    monkeypatch.setattr(payload.tracking.mlflow_run, "RETRY_S", 0.1)
    server.mode, server.faulty_path = "ok", ""
    return server


class Laptop:
    """A folder of results, and the MLflow server that its runs report to."""

    def __init__(self, results: Path, server: FaultyProxy) -> None:
        self.results, self.server = results, server
        self.client = MlflowClient(server.address)

    def folder(self, name: str = "run") -> RunFolder:
        folder = RunFolder(self.results / "runs" / name)
        folder.path.mkdir(parents=True, exist_ok=True)
        return folder

    def start(self, folder: RunFolder, search: RunFolder | None = None) -> MLflowRun:
        tracking = folder.tracking(self.results, self.server.address, search)

        def remember(run_id: str) -> None:
            folder.remember_mlflow_run(run_id, tracking.uri)

        return MLflowRun(tracking, remember)

    def deliver(self) -> list[str]:
        self.server.mode = "ok"
        return list(deliver(self.results))

    def runs(self, folder: RunFolder) -> list[Run]:
        """Returns the MLflow runs of a run folder."""
        experiment = self.client.get_experiment_by_name(EXPERIMENT_NAME)
        assert experiment is not None
        key = folder.tracking(self.results, self.server.address).key
        return list(self.client.search_runs([experiment.experiment_id], f"tags.`{KEY}` = '{key}'"))

    def points(self, run: Run) -> list[tuple[int, float, int]]:
        history = self.client.get_metric_history(run.info.run_id, "entropy")
        return [(point.step, point.value, point.timestamp) for point in history]


@pytest.fixture
def laptop(tmp_path: Path, proxy: FaultyProxy) -> Laptop:
    return Laptop(tmp_path, proxy)


def log(run: MLflowRun, *env_steps: int) -> None:
    for steps in env_steps:
        run.log_metrics({STEPS: steps, "entropy": 1 / steps}, steps)


def end(run: MLflowRun, status: Status = "FINISHED") -> None:
    """Ends a run that MLflow does not receive all of."""
    run.close(status, timeout_s=1)
    assert not run.delivered
    # Its process ends here: a request under way must not make the run while another delivers it.
    run._thread.join()


def test_a_run_that_ends_while_blob_is_away_has_its_status_and_later_its_files(
    laptop: Laptop,
) -> None:
    folder = laptop.folder()
    folder.log.write_text("said")
    run = laptop.start(folder)
    log(run, 1000)
    run.log_artifact(folder.log)
    laptop.server.mode, laptop.server.faulty_path = "broken", ARTIFACTS
    end(run)
    (tracked,) = laptop.runs(folder)
    assert tracked.info.status == "FINISHED"
    assert tracked.data.metrics["entropy"] == 1 / 1000
    assert laptop.deliver() == [f"MLflow has received the rest of {folder.path}"]
    (artifact,) = laptop.client.list_artifacts(tracked.info.run_id)
    assert artifact.path == folder.log.name
    assert not folder.undelivered_file.exists()
    assert laptop.client.get_run(tracked.info.run_id).info.end_time == tracked.info.end_time


def test_one_file_that_cannot_be_uploaded_does_not_keep_the_others(laptop: Laptop) -> None:
    folder = laptop.folder()
    run = laptop.start(folder)
    for name in ("first", "second"):
        (folder.path / name).write_text("said")
        run.log_artifact(folder.path / name)
    laptop.server.mode, laptop.server.faulty_path = "broken", "/first"
    end(run)
    (tracked,) = laptop.runs(folder)
    (artifact,) = laptop.client.list_artifacts(tracked.info.run_id)
    assert artifact.path == "second"


def test_a_run_that_mlflow_never_heard_of_arrives_as_it_was(laptop: Laptop) -> None:
    folder = laptop.folder()
    laptop.server.mode = "away"
    before = time.time()
    run = laptop.start(folder)
    run.log_params({"config.lr": 0.1})
    log(run, 1000, 2000)
    end(run, "KILLED")
    after = time.time()
    time.sleep(1)
    assert laptop.deliver() == [f"MLflow has received the rest of {folder.path}"]
    (tracked,) = laptop.runs(folder)
    assert tracked.info.status == "KILLED"
    assert tracked.data.params == {"config.lr": "0.1"}
    points = laptop.points(tracked)
    assert [(steps, value) for steps, value, _ in points] == [(1000, 1 / 1000), (2000, 1 / 2000)]
    times = [tracked.info.start_time, *(at for *_, at in points), tracked.info.end_time]
    assert times == sorted(times)
    assert before * 1000 - 1 <= times[0] <= times[-1] <= after * 1000
    assert laptop.deliver() == []


def test_no_point_is_missing_or_there_twice_after_a_lost_answer(laptop: Laptop) -> None:
    folder = laptop.folder()
    run = laptop.start(folder)
    log(run, 1000)
    run.start()
    wait_for(lambda: run.delivered)
    laptop.server.mode, laptop.server.faulty_path = "lost", "log-batch"
    log(run, 2000, 3000)
    end(run)
    laptop.deliver()
    (tracked,) = laptop.runs(folder)
    assert [steps for steps, *_ in laptop.points(tracked)] == [1000, 2000, 3000]


def test_a_creation_whose_answer_is_lost_makes_no_second_run(laptop: Laptop) -> None:
    folder = laptop.folder()
    laptop.server.mode, laptop.server.faulty_path = "lost", "runs/create"
    run = laptop.start(folder)
    run.start()
    wait_for(lambda: run.run_id)
    run.close("FINISHED")
    (tracked,) = laptop.runs(folder)
    assert tracked.info.status == "FINISHED"


def test_a_driver_killed_before_the_answer_to_its_creation_leaves_no_run_behind(
    laptop: Laptop,
) -> None:
    folder = laptop.folder()
    run = laptop.start(folder)
    run.start()
    wait_for(lambda: run.run_id)
    remembered = json.loads(folder.mlflow_run_file.read_text())
    folder.mlflow_run_file.write_text(json.dumps({"key": remembered["key"]}))
    again = laptop.start(folder)
    again.close("FINISHED")
    run.close("FINISHED")
    assert again.run_id == run.run_id


def test_a_run_that_continues_delivers_what_it_had_not(laptop: Laptop) -> None:
    folder = laptop.folder()
    run = laptop.start(folder)
    log(run, 1000)
    run.start()
    wait_for(lambda: run.delivered)
    laptop.server.mode = "away"
    log(run, 2000)
    end(run, "KILLED")
    killed_at = time.time() * 1000
    time.sleep(0.1)
    laptop.server.mode = "ok"
    again = laptop.start(folder)
    log(again, 1000, 2000, 3000)  # As from progress.csv, and an iteration of its own.
    again.start()
    # Now already: a process that is killed has no status to leave there.
    wait_for(lambda: not folder.undelivered_file.exists())
    again.close("FINISHED")
    (tracked,) = laptop.runs(folder)
    assert tracked.info.status == "FINISHED"
    points = laptop.points(tracked)
    assert [steps for steps, *_ in points] == [1000, 2000, 3000]
    assert points[1][2] <= killed_at < points[2][2]


def test_a_process_killed_while_it_waits_for_mlflow_loses_nothing(laptop: Laptop) -> None:
    folder = laptop.folder()
    laptop.server.mode = "away"
    run = laptop.start(folder)
    log(run, 1000)
    waits = threading.Thread(target=run.close, args=["FINISHED", 600], daemon=True)
    waits.start()
    wait_for(folder.undelivered_file.exists)
    kept = folder.undelivered_file.read_text()
    laptop.server.mode = "ok"
    waits.join()
    other = laptop.folder("other")
    other.undelivered_file.write_text(kept)
    laptop.deliver()
    (tracked,) = laptop.runs(other)
    assert tracked.info.status == "FINISHED"
    assert [steps for steps, *_ in laptop.points(tracked)] == [1000]


def test_a_run_that_is_training_delivers_itself(laptop: Laptop) -> None:
    folder = laptop.folder()
    laptop.server.mode = "away"
    end(laptop.start(folder))
    with driver_lock(folder):
        assert laptop.deliver() == []
    assert laptop.deliver() == [f"MLflow has received the rest of {folder.path}"]


def test_an_old_file_does_not_change_the_end_of_a_run_that_has_continued(laptop: Laptop) -> None:
    folder = laptop.folder()
    laptop.server.mode = "away"
    end(laptop.start(folder), "KILLED")
    old = folder.undelivered_file.read_text()
    laptop.server.mode = "ok"
    again = laptop.start(folder)
    again.close("FINISHED")
    folder.undelivered_file.write_text(old)  # As a new head restores it from Blob.
    laptop.deliver()
    (tracked,) = laptop.runs(folder)
    assert tracked.info.status == "FINISHED"


def test_two_processes_that_deliver_at_once_make_one_run(laptop: Laptop) -> None:
    folders = [laptop.folder(name) for name in "abcd"]
    laptop.server.mode = "away"
    for folder in folders:
        end(laptop.start(folder))
    with ThreadPoolExecutor() as pool:
        told = [*pool.map(lambda _: laptop.deliver(), range(4))]
    assert sorted(map(len, told)) == [0, 0, 0, 4]
    assert [len(laptop.runs(folder)) for folder in folders] == [1] * 4


def test_a_trial_comes_into_its_search(laptop: Laptop) -> None:
    search, trial = laptop.folder("search"), laptop.folder("search/trial_1")
    laptop.server.mode = "away"
    runs = [laptop.start(trial, search), laptop.start(search)]
    for run in runs:
        end(run)
    assert len(laptop.deliver()) == 2
    (parent,), (tracked,) = laptop.runs(search), laptop.runs(trial)
    assert tracked.data.tags["mlflow.parentRunId"] == parent.info.run_id


def test_a_run_that_mlflow_lacks_gets_its_own_experiment_and_tags(laptop: Laptop) -> None:
    folder = laptop.folder()
    folder.experiment_file.write_text("{experiment_name: mine, tags: {team: red}}")
    laptop.server.mode = "away"
    end(laptop.start(folder))
    assert len(laptop.deliver()) == 1
    experiment = laptop.client.get_experiment_by_name("mine")
    (tracked,) = laptop.client.search_runs([experiment.experiment_id])
    assert tracked.data.tags["team"] == "red"


def test_the_runs_of_a_script_end_when_it_has(laptop: Laptop) -> None:
    folder = laptop.folder()
    (experiment,) = laptop.client.search_experiments(filter_string=f"name = '{EXPERIMENT_NAME}'")
    tags = {SUBMISSION: folder.path.name}
    run = laptop.client.create_run(experiment.experiment_id, tags=tags)
    ended_ms = run.info.start_time + 1000
    write_end(folder.undelivered_file, laptop.server.address, "FAILED", ended_ms)
    assert laptop.deliver() == [f"MLflow has received the end of {folder.path}"]
    tracked = laptop.client.get_run(run.info.run_id).info
    assert (tracked.status, tracked.end_time) == ("FAILED", ended_ms)
    assert laptop.deliver() == []


def test_what_cannot_be_delivered_stays_and_is_named(laptop: Laptop) -> None:
    folder, damaged = laptop.folder("a"), laptop.folder("b")
    laptop.server.mode = "away"
    end(laptop.start(folder))
    damaged.undelivered_file.write_text("[1]")
    lines = list(deliver(laptop.results))
    assert [line.partition(",")[0] for line in lines] == [
        f"MLflow has not received {file}"
        for file in (folder.undelivered_file, damaged.undelivered_file)
    ]
    assert folder.undelivered_file.exists()
    assert len(laptop.deliver()) == 2


def test_a_run_deleted_after_its_end_stays_deleted(laptop: Laptop) -> None:
    folder = laptop.folder()
    run = laptop.start(folder)
    run.log_artifact(folder.path / "curve.png")
    (folder.path / "curve.png").write_text("picture")
    laptop.server.mode, laptop.server.faulty_path = "broken", ARTIFACTS
    end(run)
    assert run.run_id is not None
    laptop.client.delete_run(run.run_id)
    (line,) = laptop.deliver()
    assert line == f"{folder.path} was deleted in MLflow, so the rest of it is not sent"
    assert laptop.client.get_run(run.run_id).info.lifecycle_stage == "deleted"
    assert not folder.undelivered_file.exists()
