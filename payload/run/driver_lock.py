"""The lock that a driver holds on its run, and the status of runs whose driver is gone.

The kernel releases the lock however the process ends, a power cut included. The file names the
driver until the run has ended cleanly.
"""

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from payload.errors import TemporaryError, UserError, first_line
from payload.run.run_folder import RUNS, RunFolder
from payload.tracking.mlflow_run import DATABASE, Tracking, end_run

LOCK = ".driver.lock"
RETRY_FOR_S = 3.0
"""A driver that has just been killed takes a moment to end."""


@contextmanager
def driver_lock(folder: RunFolder) -> Iterator[None]:
    """Makes this process the run's driver until the run has ended cleanly.

    Raises:
        UserError: The driver of the run is alive.
        TemporaryError: It is, and both are jobs of a cluster: it ends once it misses its Ray.
    """
    with (folder.path / LOCK).open("a+") as lock:
        if not acquire(lock):
            host, pid = _driver(lock)
            reason = f"--resume {folder.path}: process {pid} on {host} is running it"
            from payload.run.ray_cluster import is_job

            if is_job():
                raise TemporaryError(reason)
            raise UserError(f"{reason}; stop that first")
        _write(lock, f"{socket.gethostname()} {os.getpid()}")
        yield
        _write(lock, "")


def has_driver(folder: RunFolder) -> bool:
    """Whether a process is training the run."""
    try:
        with (folder.path / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # Nobody has started the run, or the file system has no locks.
        return False
    return False


def mark_dead_runs(results: Path, tracking_uri: str | None = None) -> Iterator[str]:
    """Sets runs to KILLED in MLflow if a dead driver has left them as RUNNING.

    Runs whose driver is alive, or was on another host, stay as they are.

    Args:
        tracking_uri: URI of an MLflow server; None is the database below `results`.

    Yields:
        A line for each marked run, or for an error of MLflow.
    """
    if tracking_uri is None and not (results / DATABASE).exists():
        return  # A client would create it.
    for folder, run_id, last_sign in list(_dead_runs(results, tracking_uri)):
        if has_driver(folder):
            continue
        # Without its lock: MLflow may take minutes, and somebody may resume the run.
        try:
            marked = end_run(_uri(results, folder, tracking_uri), run_id, "KILLED", last_sign)
        except Exception as error:  # MLflow errors must not prevent training.
            yield f"Run {folder.path} ended unexpectedly; MLflow: {first_line(error)}"
            return
        with suppress(OSError), (folder.path / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write(lock, "")
        if marked:
            at = time.strftime("%Y-%m-%d %H:%M", time.localtime(last_sign))
            yield f"Run {folder.path} ended unexpectedly at {at}; marked KILLED in MLflow"


def _dead_runs(results: Path, tracking_uri: str | None) -> Iterator[tuple[RunFolder, str, float]]:
    """Yields runs whose driver has died here, with their MLflow run and the time of death."""
    runs = results / RUNS
    # Locks of runs and searches, and of a search's trials.
    for path in sorted([*runs.glob(f"*/{LOCK}"), *runs.glob(f"*/*/{LOCK}")]):
        folder = RunFolder(path.parent)
        # The lock is held, or another user's, or the file system has no locks.
        with suppress(OSError), path.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            host, _ = _driver(lock)
            run_id = folder.mlflow_run_id(_uri(results, folder, tracking_uri))
            if host != socket.gethostname() or run_id is None:
                continue
            if folder.undelivered_file.exists():
                continue  # It was killed when it had ended: the file has its status.
            yield folder, run_id, max(file.stat().st_mtime for file in folder.path.iterdir())


def _uri(results: Path, folder: RunFolder, tracking_uri: str | None) -> str:
    return tracking_uri or Tracking.embedded(results, folder.path.name).uri


def acquire(lock: TextIO) -> bool:
    """Locks a file until it is closed; False if another process keeps it locked."""
    end = time.monotonic() + RETRY_FOR_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        except OSError:  # The file system has no locks: train without.
            return True
        else:
            return True


def _driver(lock: TextIO) -> tuple[str, str]:
    """Returns the host and process of the driver; empty after a clean end."""
    lock.seek(0)
    host, _, pid = lock.read().partition(" ")
    return host, pid


def _write(lock: TextIO, text: str) -> None:
    with suppress(OSError):  # A full disk.
        lock.seek(0)
        lock.truncate()
        lock.write(text)
        lock.flush()
