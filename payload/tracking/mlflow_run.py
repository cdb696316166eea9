"""One training run as one MLflow run, delivered by a thread that training never waits for."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from payload.command_line import ui_command
from payload.errors import first_line, without_secrets
from payload.experiment.settings import Experiment
from payload.tracking.mlflow_experiment import (
    ACTIVE,
    EXPERIMENT_NAME,
    delivered_until,
    is_missing,
    lifecycle_stage,
    open_run,
)
from payload.tracking.outbox import (
    PARAM_LIMIT,
    MetricPoint,
    Outbox,
    Request,
    is_final,
    read_outbox,
)

DATABASE = "mlflow.db"
"""The embedded database, in the folder of results."""
RETRY_S = 5.0
"""Pause after an MLflow server did not answer."""
CLOSE_TIMEOUT_S = 60.0
"""How long the end of a run waits for pending deliveries."""
NOTES = "mlflow.note.content"
"""The tag that MLflow shows as a run's description."""
MAX_RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"

Status = Literal["FINISHED", "FAILED", "KILLED"]
Recorded = Callable[[], Iterable[tuple[int, dict[str, float]]]]
"""Yields environment steps and metrics of each iteration, from the beginning at each call."""
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
    key: str = ""
    """The value of the tag KEY; a random one if empty."""
    tags: dict[str, str] = field(default_factory=dict)
    """Tags of a new run, besides KEY and those of MLflow."""
    experiment_name: str = EXPERIMENT_NAME
    """The MLflow experiment of a new run."""
    undelivered: Path | None = None
    """The file that keeps what MLflow has not received when the run ends; see Outbox."""

    def of(self, experiment: Experiment) -> Tracking:
        """Returns it with what an experiment says of its run."""
        notes = {} if experiment.notes is None else {NOTES: experiment.notes}
        name = experiment.experiment_name or EXPERIMENT_NAME
        return replace(self, tags={**experiment.tags, **notes}, experiment_name=name)

    @property
    def server(self) -> str | None:
        """The server's URI; None for the database in the results, which may be moved."""
        return self.uri if self.artifacts is None else None

    def page(self, experiment_id: str, run_id: str) -> str:
        """Returns the address of a run's page, or the command that serves an embedded database."""
        if self.uri.startswith("http"):
            server = without_secrets(self.uri.rstrip("/"))
            return run_page(server, experiment_id, run_id)
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


class MLflowRun:
    """Delivers parameters, metrics, the status and artifacts, see Outbox.

    Only `close` waits. While a server is away, deliveries are kept and repeated; what is left when
    the run ends is kept in a file. A resumed run delivers from progress.csv and that file what an
    earlier one could not, and nothing that MLflow has.
    """

    def __init__(
        self,
        tracking: Tracking,
        on_start: Callable[[str], None] | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        """
        Args:
            on_start: Called with the run's id once it is known.
            say: Called with a line if the run or its experiment was deleted.
        """
        self.tracking = tracking
        self.run_id = tracking.run_id
        self.problem: str | None = None
        """Why deliveries are waiting right now; None while all is well."""
        self.page: str | None = None
        """Where a person sees the run, once it is known: Tracking.page."""
        self._on_start, self._say = on_start, say
        self._key = tracking.key or uuid.uuid4().hex
        self._client: Any = None
        self._outbox = _left_over(tracking.undelivered)
        self._old_file = tracking.undelivered
        """An earlier process may have written it; None once MLflow has its content."""
        self._left_over = len(self._outbox.points)
        """So many points of the outbox are an earlier process's, until one is delivered."""
        self._logged_until = max((point.env_steps for point in self._outbox.points), default=-1)
        """The outbox has an earlier process's metrics up to here, with their time."""
        self._recorded: Recorded | None = None
        """What earlier processes have recorded, until the outbox has what MLflow lacks of it."""
        self._points_lock = threading.Lock()
        """Held while points are added to the outbox: for microseconds, since training waits."""
        self._recorded_lock = threading.Lock()
        """Held while `_recorded` is read, which may take minutes."""
        self._news, self._closed, self._given_up = (threading.Event() for _ in range(3))
        self._thread = threading.Thread(target=self._deliver, name="mlflow", daemon=True)

    @property
    def delivered(self) -> bool:
        """Whether MLflow has received everything."""
        return not self._outbox

    def log_metrics(self, values: dict[str, float], env_steps: int) -> None:
        """Logs values on the axis of environment steps.

        A resumed run trains the steps since its checkpoint again: MLflow keeps what it has there.
        """
        if env_steps <= self._logged_until:
            return
        with self._points_lock:
            self._outbox.points.extend(_points(values, env_steps))
        self._news.set()

    def log_recorded(self, recorded: Recorded) -> None:
        """Logs what earlier processes have recorded.

        Weeks of metrics would fill the memory, so they are read only after MLflow has said which of
        them it has: nearly all.
        """
        self._recorded = recorded

    def log_params(self, params: dict[str, Any]) -> None:
        """Logs parameters; one that a resumed run has already keeps its first value."""
        self._outbox.params.append({k: str(v)[:PARAM_LIMIT] for k, v in params.items()})
        self._news.set()

    def log_artifact(self, path: Path, folder: str | None = None) -> None:
        """Uploads a file, or all files of a folder; skips one that is gone by then.

        It also skips one for which the artifacts' disk has no space: the rest need not wait.
        """
        self._outbox.files.append((path, folder))
        self._news.set()

    def close(self, status: Status, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Delivers what is left, sets the run's status and ends; waits `timeout_s` at most.

        What is left then is in the file Tracking.undelivered, even if this process is killed while
        it waits.
        """
        self._outbox.end = status, int(time.time() * 1000)
        self._add_recorded(after=-1)
        self._keep()
        self._closed.set()
        self._news.set()
        self.start()
        self._thread.join(timeout_s)
        self._given_up.set()
        self._keep()

    def start(self) -> None:
        """Starts delivery. Until then everything is only kept, and MLflow is not imported."""
        if self._thread.ident is None and not self._given_up.is_set():
            self._thread.start()

    def _keep(self) -> None:
        """Writes what MLflow has yet to receive, or removes the file if that is nothing."""
        file = self.tracking.undelivered
        if file is None:
            return
        try:
            if self._outbox:
                self._outbox.write(file, self.tracking.server)
            else:
                file.unlink(missing_ok=True)
        except OSError as error:  # A full disk must not end a run.
            print(f"MLflow: {first_line(error)}", flush=True)

    def _forget_left_over(self) -> None:
        """Removes the file of an earlier process, once MLflow has its content."""
        if self._old_file is not None and not self._closed.is_set():
            self._old_file.unlink(missing_ok=True)
        self._old_file = None

    def _deliver(self) -> None:
        is_over = not self._until_done(self._connect)
        while not is_over:
            self._news.wait()
            self._news.clear()
            is_over = self._closed.is_set()
            for request, done in self._outbox.requests():
                if not self._until_done(partial(self._send, request)):
                    return
                done()
            self._forget_left_over()

    def _connect(self) -> None:
        """Makes a client, and creates, finds or resumes the run."""
        outbox, client = self._outbox, connected_client(self.tracking)
        run = open_run(client, self.tracking, self.run_id, self._key, outbox.started_ms, self._say)
        run_id = str(run.info.run_id)
        if run.info.status != "RUNNING" and not self._closed.is_set():
            client.update_run(run_id, status="RUNNING")
        outbox.delivered_until = delivered_until(client, run_id)
        self._add_recorded(outbox.delivered_until)
        self._client, self.run_id = client, run_id
        self.page = self.tracking.page(run.info.experiment_id, run_id)
        if self._on_start is not None:
            self._on_start(run_id)

    def _add_recorded(self, after: int) -> None:
        """Adds what earlier processes have recorded after a number of steps, before what is new."""
        with self._recorded_lock:  # A run may end while its delivery begins.
            recorded, self._recorded = self._recorded, None
            if recorded is None:
                return
            after = max(after, self._logged_until)
            rows = (row for row in recorded() if row[0] > after)
            older = [point for steps, values in rows for point in _points(values, steps)]
            with self._points_lock:
                points = self._outbox.points
                new = [points.pop() for _ in range(len(points) - self._left_over)]
                points.extend([*older, *reversed(new)])

    def _send(self, request: Request) -> None:
        """Sends a request. If somebody has deleted the run, restores it or makes a new one."""
        try:
            request(self._client, self.run_id or "")
        except Exception as error:
            refused = is_final(error) or is_missing(error)
            if not refused or lifecycle_stage(self._client, self.run_id or "") == ACTIVE:
                raise
            self._connect()
            request(self._client, self.run_id or "")

    def _until_done(self, attempt: Callable[[], None]) -> bool:
        """Repeats what fails until MLflow takes or refuses it; returns False without time left."""
        while not self._given_up.is_set():
            try:
                attempt()
            except Exception as error:  # Whatever MLflow raises, training continues.
                self.problem = first_line(error)
                if is_final(error) and self._client is not None:
                    print(f"MLflow: {self.problem}; not repeated", flush=True)
                    return True
                print(f"MLflow: {self.problem}; retrying in {RETRY_S:g} s", flush=True)
                self._given_up.wait(RETRY_S)
            else:
                self.problem = None
                return True
        return False


def _points(values: dict[str, float], env_steps: int) -> list[MetricPoint]:
    now = int(time.time() * 1000)
    return [MetricPoint(name, value, env_steps, now) for name, value in values.items()]


def _left_over(file: Path | None) -> Outbox:
    """Returns an outbox with the parameters and metrics of an earlier process of the same run."""
    if file is None or not file.exists():
        return Outbox()
    try:
        outbox, _ = read_outbox(file)
    except (OSError, ValueError) as error:
        print(f"MLflow: {first_line(error)}", flush=True)
        return Outbox()
    # The run continues, and logs these again at its end.
    outbox.end = None
    outbox.files.clear()
    return outbox


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


def run_page(server: str, experiment_id: str, run_id: str) -> str:
    """Returns the page with a run's charts; `server` is an address, http://..."""
    return f"{server}/#/experiments/{experiment_id}/runs/{run_id}/model-metrics?{_TRAINING}"


def experiment_page(server: str, experiment_id: str) -> str:
    """Returns the page with the charts of all runs of an experiment."""
    return f"{server}/#/experiments/{experiment_id}/runs?{_TRAINING}&compareRunsMode=CHART"
