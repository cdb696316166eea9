"""Runs that ended while MLflow or its storage was away: delivers what it has not received.

A run keeps that in its folder, see MLflowRun.close. On a laptop the next `volley train`, `tune` or
`ui` delivers it, on a cluster the head: `python -m payload.run.undelivered RESULTS`.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from payload.errors import first_line
from payload.experiment.read import read_experiment
from payload.run.driver_lock import has_driver
from payload.run.run_folder import RUNS, UNDELIVERED, RunFolder
from payload.tracking.mlflow_experiment import DELETED, delivered_until, lifecycle_stage, open_run
from payload.tracking.mlflow_run import Tracking, connected_client
from payload.tracking.outbox import Delivery, is_final, read_outbox
from payload.tracking.script_runs import end_runs


def deliver_in_background(results: Path, say: Callable[[str], None]) -> None:
    """Delivers without letting anybody wait; says a line for each run."""

    def deliver_all() -> None:
        for line in deliver(results):
            say(line)

    if _folders(results):
        threading.Thread(target=deliver_all, name="undelivered", daemon=True).start()


def deliver(results: Path) -> Iterator[str]:
    """Delivers what MLflow has not received of the ended runs below `results`.

    Yields:
        A line for each run: MLflow has everything now, or why not. No line while another process
        delivers them.
    """
    if not _folders(results):
        return
    with _alone(results / RUNS) as is_alone:
        for folder in _folders(results) if is_alone else []:
            try:
                outcome = _deliver(results, folder)
            except Exception as error:  # MLflow raises errors of several libraries.
                file = folder.undelivered_file
                outcome = f"MLflow has not received {file}, which is kept: {first_line(error)}"
            if outcome:
                yield outcome


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether no other process delivers now. Two of them would make two MLflow runs of one."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        except OSError:  # The file system has no locks.
            pass
        yield True
    finally:
        os.close(lock)


def _folders(results: Path) -> list[RunFolder]:
    """Returns runs and searches before trials, which need the MLflow run of their search."""
    runs = results / RUNS
    files = [*sorted(runs.glob(f"*/{UNDELIVERED}")), *sorted(runs.glob(f"*/*/{UNDELIVERED}"))]
    return [RunFolder(file.parent) for file in files]


def _deliver(results: Path, folder: RunFolder) -> str:
    """Delivers the rest of one run; returns what has become of it, or "" if it is training.

    A run that continues meanwhile delivers the same: MLflow ignores a point that it has.
    """
    if has_driver(folder):
        return ""
    file = folder.undelivered_file
    content = json.loads(file.read_text())
    if "script" in content:
        client = connected_client(Tracking.at(content["server"], results, folder.path.name))
        end_runs(client, folder.path, *content["script"])
        file.unlink()
        return f"MLflow has received the end of {folder.path}"
    outbox, server = read_outbox(file)
    search = RunFolder(folder.path.parent) if folder.path.parent != results / RUNS else None
    tracking = folder.tracking(results, server, search)
    if folder.experiment_file.is_file():  # It names the experiment of a run that MLflow lacks.
        tracking = tracking.of(read_experiment(folder.experiment_file).experiment)
    client = connected_client(tracking)
    if tracking.run_id and lifecycle_stage(client, tracking.run_id) == DELETED:
        file.unlink()
        return f"{folder.path} was deleted in MLflow, so the rest of it is not sent"
    key, started = tracking.key, outbox.started_ms
    run_id = str(open_run(client, tracking, tracking.run_id, key, started, print).info.run_id)
    folder.remember_mlflow_run(run_id, tracking.uri)
    outbox.delivered_until = delivered_until(client, run_id)
    written = _state(file)
    for delivery in outbox.values():
        if has_driver(folder):
            return ""
        _send(delivery, client, run_id)
    problem: Exception | None = None
    for _ in range(len(outbox.files)):
        try:
            _send((outbox.send_file, outbox.files.popleft), client, run_id)
        except Exception as error:  # The next file may be readable.
            problem = error
    if _state(file) != written:
        return ""  # The run has continued, and written its own.
    if problem is not None:
        outbox.write(file, server)
        raise problem
    file.unlink()
    return f"MLflow has received the rest of {folder.path}"


def _state(file: Path) -> tuple[int, int] | None:
    """Returns what changes when a file is replaced; None without the file."""
    if not file.exists():
        return None
    state = file.stat()
    return state.st_ino, state.st_mtime_ns


def _send(delivery: Delivery, client: object, run_id: str) -> None:
    request, done = delivery
    try:
        request(client, run_id)
    except Exception as error:
        if not is_final(error):
            raise
        print(f"MLflow: {first_line(error)}; not repeated", flush=True)
    done()


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        for told in deliver(Path(argument)):
            print(told, flush=True)
