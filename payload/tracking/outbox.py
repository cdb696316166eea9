"""What MLflow has yet to receive of one run: in memory, and in a file once the run has ended."""

from __future__ import annotations

import errno
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from payload.atomic_file import replace_text

if TYPE_CHECKING:
    from payload.tracking.mlflow_run import Status

Request = Callable[[Any, str], None]
"""Takes an MlflowClient and the run's id. A repetition changes nothing in MLflow."""
Delivery = tuple[Request, Callable[[], object]]
PARAM_LIMIT = 6000
"""MLflow's longest parameter value, in characters."""
BATCH = 1000
"""Most metrics that MLflow takes in one request."""


@dataclass(frozen=True)
class MetricPoint:
    """One value on the axis of environment steps."""

    name: str
    value: float
    env_steps: int
    timestamp_ms: int


class Outbox:
    """Parameters, metrics, the status and files, in the order in which MLflow gets them.

    The status precedes the files because a cluster's files need Blob as well.
    """

    def __init__(self) -> None:
        self.started_ms = int(time.time() * 1000)
        self.params: deque[dict[str, str]] = deque()
        self.points: deque[MetricPoint] = deque()
        self.end: tuple[Status, int] | None = None
        """The status of a run that has ended, and the time in milliseconds since 1970."""
        self.files: deque[tuple[Path, str | None]] = deque()
        """Files or folders, each with the folder among the artifacts."""
        self.delivered_until = -1
        """MLflow has the metrics up to here, in environment steps."""

    def __bool__(self) -> bool:
        return bool(self.params or self.points or self.end or self.files)

    def requests(self) -> Iterator[Delivery]:
        """Yields each request, and what removes its content when MLflow has taken or refused it."""
        yield from self.values()
        while self.files:
            yield self.send_file, self.files.popleft

    def values(self) -> Iterator[Delivery]:
        """Yields those of the requests that need MLflow's database only."""
        while self.params:
            yield partial(_send_params, self.params[0]), self.params.popleft
        while self.points:
            batch = self._batch()
            yield partial(_send_points, batch, self.delivered_until), partial(self._drop, batch)
        if self.end is not None:
            yield partial(_send_end, *self.end), self._ended

    def _batch(self) -> list[MetricPoint]:
        """Returns whole iterations, so that MLflow has all metrics of one or none."""
        batch = [self.points[i] for i in range(min(len(self.points), BATCH + 1))]
        if len(batch) <= BATCH:
            return batch
        cut = BATCH
        while cut and batch[cut - 1].env_steps == batch[BATCH].env_steps:
            cut -= 1
        return batch[: cut or BATCH]

    def _drop(self, batch: list[MetricPoint]) -> None:
        for _ in batch:
            self.points.popleft()

    def _ended(self) -> None:
        self.end = None

    def send_file(self, client: Any, run_id: str) -> None:
        """Uploads the first file; after a failure that may pass, it is the last one."""
        path, folder = self.files[0]
        try:
            if path.is_dir():
                client.log_artifacts(run_id, str(path), folder)
            elif path.exists():
                client.log_artifact(run_id, str(path), folder)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EACCES):
                print(f"MLflow: {path} is not uploaded: {error.strerror}", flush=True)
                return
            if not is_final(error):
                self.files.rotate(-1)  # The others need not wait for it.
            raise

    def write(self, file: Path, server: str | None) -> None:
        """Replaces the file by one with this content; paths are relative to the file's folder.

        Args:
            server: The tracking URI; None for the database in the results.
        """
        content = {
            "server": server,
            "started_ms": self.started_ms,
            "params": list(self.params),
            "points": [astuple(point) for point in self.points.copy()],
            "end": self.end,
            "files": [(os.path.relpath(path, file.parent), to) for path, to in self.files.copy()],
        }
        replace_text(file, json.dumps(content))


def read_outbox(file: Path) -> tuple[Outbox, str | None]:
    """Returns the content of a file that Outbox.write has written, and its server.

    Raises:
        ValueError: It is damaged.
    """
    content = json.loads(file.read_text())
    outbox = Outbox()
    try:
        outbox.started_ms = content["started_ms"]
        outbox.params.extend(content["params"])
        outbox.points.extend(MetricPoint(*point) for point in content["points"])
        if content["end"] is not None:
            status, ended_ms = content["end"]
            outbox.end = cast("Status", status), int(ended_ms)
        outbox.files.extend((file.parent / path, to) for path, to in content["files"])
        return outbox, content["server"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{file} is damaged: {error!r}") from None


def _send_params(params: dict[str, str], client: Any, run_id: str) -> None:
    """Logs parameters; one that MLflow has keeps its first value."""
    from mlflow.entities import Param

    logged = client.get_run(run_id).data.params
    new = [Param(k, v) for k, v in params.items() if k not in logged]
    if new:
        client.log_batch(run_id, params=new)


def _send_points(batch: list[MetricPoint], after: int, client: Any, run_id: str) -> None:
    from mlflow.entities import Metric

    new = [p for p in batch if p.env_steps > after]
    if new:
        metrics = [Metric(p.name, p.value, p.timestamp_ms, p.env_steps) for p in new]
        client.log_batch(run_id, metrics=metrics)


def _send_end(status: Status, ended_ms: int, client: Any, run_id: str) -> None:
    """Ends the run, unless it has ended since: a restored file may be older than that."""
    run = client.get_run(run_id).info
    if run.status == "RUNNING" or (run.end_time or 0) < ended_ms:
        client.set_terminated(run_id, status, ended_ms)


def is_final(error: Exception) -> bool:
    """Whether MLflow would refuse the same request again."""
    return error_code(error) in ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")


def error_code(error: Exception) -> str | None:
    """Returns the code of MLflow's own errors, see mlflow.exceptions; None for any other."""
    from mlflow.exceptions import MlflowException

    return str(error.error_code) if isinstance(error, MlflowException) else None
