"""One training run as one MLflow run, delivered by a thread that training never waits for."""

from __future__ import annotations

import errno
import json
import os
import queue
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from payload.command_line import ui_command
from payload.errors import first_line
from payload.tracking.metrics import STEPS

EXPERIMENT_NAME = "volley"
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
"""Makes MLflow's UI open on charts of training instead of traces of language models."""
PARENT = "mlflow.parentRunId"
"""The tag by which MLflow nests a run in another one."""
DATABASE = "mlflow.db"
"""The embedded database, in the folder of results."""
RETRY_S = 5.0
"""Pause after an MLflow server did not answer."""
CLOSE_TIMEOUT_S = 60.0
"""How long the end of a run waits for pending deliveries."""
PARAM_LIMIT = 6000
"""MLflow's longest parameter value, in characters."""
MAX_RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
BATCH = 1000
"""Most metrics that MLflow takes in one request."""

Status = Literal["FINISHED", "FAILED", "KILLED"]
_TRAINING = "workflowType=machine_learning"
"""Without it MLflow's pages open as pages of language models."""


@dataclass(frozen=True)
class Tracking:
    """The place and the names of an MLflow run."""

    uri: str
    """A server (http://...) or an embedded database (sqlite:///...)."""
    artifacts: Path | None
    """Where an embedded database keeps its artifacts; a server has its own place."""
    run_name: str
    run_id: str | None = None
    """The run that a resumed training continues in."""
    parent_file: Path | None = None
    """RunFolder.mlflow_run_file of the run that contains this one."""

    def page(self, experiment_id: str, run_id: str) -> str:
        """Returns the address of a run's page, or the command that serves an embedded database."""
        if self.uri.startswith("http"):
            return run_page(self.uri.rstrip("/"), experiment_id, run_id)
        # A database's address may contain a password.
        return f"run {run_id}" if self.artifacts is None else ui_command(self.artifacts.parent)

    @classmethod
    def at(cls, uri: str | None, results: Path, run_name: str) -> Tracking:
        """Returns the Tracking of a server, or of the database below `results` without one."""
        return cls.embedded(results, run_name) if uri is None else cls(uri, None, run_name)

    @classmethod
    def embedded(cls, results: Path, run_name: str, run_id: str | None = None) -> Tracking:
        """Returns the Tracking of an SQLite database and an artifact folder below `results`."""
        root = results.resolve()
        return cls(f"sqlite:///{root}/{DATABASE}", root / "mlartifacts", run_name, run_id)


@dataclass(frozen=True)
class MetricPoint:
    """One value on the axis of environment steps."""

    name: str
    value: float
    env_steps: int
    timestamp_ms: int


class MLflowRun:
    """Delivers metrics, parameters and artifacts in the order in which they were given.

    Only `close` waits. While a server is away, deliveries are kept and repeated. A resumed run
    delivers from progress.csv what an earlier one could not, and nothing that MLflow has.
    """

    def __init__(self, tracking: Tracking, on_start: Callable[[str], None] | None = None) -> None:
        """
        Args:
            on_start: Called with the run's id once it is known.
        """
        self.tracking = tracking
        self.run_id = tracking.run_id
        self.problem: str | None = None
        """Why deliveries are waiting right now; None while all is well."""
        self.page: str | None = None
        """Where a person sees the run, once it is known: Tracking.page."""
        self._on_start = on_start
        self._queue: queue.Queue[Callable[[Any, str], None] | None] = queue.Queue()
        self._closing = threading.Event()
        self._points: deque[MetricPoint] = deque()
        """Not yet delivered."""
        self._env_steps_there = -1
        """MLflow has a resumed run's metrics up to here."""
        self._thread = threading.Thread(target=self._deliver, name="mlflow", daemon=True)

    def log_metrics(self, values: dict[str, float], env_steps: int) -> None:
        """Logs values on the axis of environment steps.

        A resumed run trains the steps since its checkpoint again: MLflow keeps what it has there.
        """
        now = int(time.time() * 1000)
        self._points.extend(MetricPoint(k, v, env_steps, now) for k, v in values.items())
        self._put(self._deliver_points)

    def log_params(self, params: dict[str, Any]) -> None:
        """Logs parameters; one that a resumed run has already keeps its first value."""

        def deliver(client: Any, run_id: str) -> None:
            from mlflow.entities import Param

            logged = client.get_run(run_id).data.params
            new = [Param(k, str(v)[:PARAM_LIMIT]) for k, v in params.items() if k not in logged]
            if new:
                client.log_batch(run_id, params=new)

        self._put(deliver)

    def log_artifact(self, path: Path, folder: str | None = None) -> None:
        """Uploads a file, or all files of a folder; skips one that is gone by then.

        It also skips one for which the artifacts' disk has no space: the rest need not wait.
        """

        def deliver(client: Any, run_id: str) -> None:
            try:
                if path.is_dir():
                    client.log_artifacts(run_id, str(path), folder)
                elif path.exists():
                    client.log_artifact(run_id, str(path), folder)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                print(f"MLflow: no space left for {path}", flush=True)

        self._put(deliver)

    def close(self, status: Status, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Delivers what is left, sets the run's status and ends; waits `timeout_s` at most."""
        self._put(lambda client, run_id: client.set_terminated(run_id, status))
        self._queue.put(None)
        self.start()
        self._thread.join(timeout_s)
        self._closing.set()

    def _deliver_points(self, client: Any, run_id: str) -> None:
        """Delivers all waiting points, those of several iterations in one request."""
        from mlflow.entities import Metric

        while self._points:
            batch = list(islice(self._points, BATCH))
            new = [p for p in batch if p.env_steps > self._env_steps_there]
            try:
                client.log_batch(
                    run_id,
                    metrics=[Metric(p.name, p.value, p.timestamp_ms, p.env_steps) for p in new],
                )
            except Exception as error:
                if not _is_final(error):
                    raise
            for _ in batch:
                self._points.popleft()

    def _put(self, deliver: Callable[[Any, str], None]) -> None:
        self._queue.put(deliver)

    def start(self) -> None:
        """Starts delivery. Until then everything is only kept, and MLflow is not imported."""
        if not self._thread.is_alive() and not self._closing.is_set():
            self._thread.start()

    def _deliver(self) -> None:
        client = self._until_delivered(self._connect)
        run_id = self.run_id or ""
        while client is not None:
            deliver = self._queue.get()
            if deliver is None:
                return
            self._until_delivered(partial(deliver, client, run_id))

    def _connect(self) -> Any:
        """Returns a client after the run was created, or resumed."""
        client = connected_client(self.tracking)
        if self.run_id is None:
            experiment_id = make_experiment(client, self.tracking)
            tags = {}
            if self.tracking.parent_file is not None:
                # Until the file exists, this raises and is tried again.
                parent = json.loads(self.tracking.parent_file.read_text())
                if parent["tracking_uri"] != self.tracking.uri:
                    raise LookupError(f"the search has no MLflow run at {self.tracking.uri} yet")
                tags[PARENT] = parent["run_id"]
            run = client.create_run(experiment_id, tags=tags, run_name=self.tracking.run_name)
            self.run_id = run.info.run_id
        else:
            client.update_run(self.run_id, status="RUNNING")
            history = client.get_metric_history(self.run_id, STEPS)
            self._env_steps_there = max((point.step for point in history), default=-1)
            experiment_id = client.get_run(self.run_id).info.experiment_id
        self.page = self.tracking.page(experiment_id, self.run_id)
        if self._on_start is not None:
            self._on_start(self.run_id)
        return client

    def _until_delivered(self, attempt: Callable[[], Any]) -> Any:
        while not self._closing.is_set():
            try:
                result = attempt()
            except Exception as error:  # Whatever MLflow raises, training continues.
                self.problem = first_line(error)
                print(f"MLflow: {self.problem}; retrying in {RETRY_S:g} s", flush=True)
                if _is_final(error):
                    return None
                self._closing.wait(RETRY_S)
            else:
                self.problem = None
                return result
        return None


def mlflow_client(tracking_uri: str) -> Any:
    """Returns an MlflowClient. MLflow sends no usage data unless the user turns that on."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    # MLflow would silently repeat a request for two minutes; MLflowRun repeats it and reports it.
    os.environ.setdefault(MAX_RETRIES, "0")
    import mlflow

    return mlflow.MlflowClient(tracking_uri)


def connected_client(tracking: Tracking) -> Any:
    """Returns an MlflowClient; makes an embedded database first, if there is none."""
    if tracking.artifacts is not None:
        make_database(Path(tracking.uri.removeprefix("sqlite:///")))
    return mlflow_client(tracking.uri)


def make_experiment(client: Any, tracking: Tracking) -> str:
    """Returns the id of volley's MLflow experiment, which it makes if there is none."""
    experiment = client.get_experiment_by_name(EXPERIMENT_NAME)
    if experiment is not None:
        return str(experiment.experiment_id)
    place = tracking.artifacts
    return str(
        client.create_experiment(
            EXPERIMENT_NAME, None if place is None else place.as_uri(), EXPERIMENT_TAGS
        )
    )


def make_database(path: Path) -> None:
    """Makes an embedded database, if there is none: with all of its tables, or not at all.

    MLflow makes one table after the other, and can never use a database that lacks some.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        aside, complete = Path(folder, "made"), Path(folder, "complete")
        mlflow_client(f"sqlite:///{aside}").search_experiments(max_results=1)
        # Not the file itself, which this process keeps open.
        shutil.copyfile(aside, complete)
        try:
            os.link(complete, path)
        except FileExistsError:
            pass  # Another run was quicker.
        except OSError:  # Not every file system has links.
            complete.replace(path)


def end_run(tracking_uri: str, run_id: str, status: Status, at: float) -> bool:
    """Sets the status of a run that is shown as RUNNING; returns whether it was.

    Args:
        at: When it ended, in seconds since 1970.
    """
    client = mlflow_client(tracking_uri)
    from mlflow.exceptions import MlflowException

    try:
        status_before = client.get_run(run_id).info.status
    except MlflowException as error:
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return False
        raise
    if status_before != "RUNNING":
        return False
    client.set_terminated(run_id, status, int(at * 1000))
    return True


def _is_final(error: Exception) -> bool:
    """Whether MLflow would refuse the same request again."""
    from mlflow.exceptions import MlflowException

    codes = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
    return isinstance(error, MlflowException) and error.error_code in codes


def run_page(server: str, experiment_id: str, run_id: str) -> str:
    """Returns the page with a run's charts; `server` is an address, http://..."""
    return f"{server}/#/experiments/{experiment_id}/runs/{run_id}/model-metrics?{_TRAINING}"


def experiment_page(server: str, experiment_id: str) -> str:
    """Returns the page with the charts of all runs of an experiment."""
    return f"{server}/#/experiments/{experiment_id}/runs?{_TRAINING}&compareRunsMode=CHART"
