"""head.results save | save-due | restore | restore-notebooks: the results to Blob, or back.

The results, which are MLflow's database and the runs, outlive the cluster. `save` saves everything,
at every end; `save-due`, every 30 s, leaves a large database for a later time.
"""

import fcntl
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from azure.core.exceptions import AzureError
from azure.storage.blob import ContainerClient

from .blob import container, retry
from .database_snapshot import DamagedError
from .marks import LOCK, MARKS
from .paths import HOME, NOTEBOOKS, RUNS, SAVED
from .saved_database import OtherWriterError, SavedDatabase
from .saved_runs import SAVE_S, SavedRuns
from .stored import count_if_due

DATABASE = HOME / "mlflow.db"
LOCK_PAUSE_S = 0.2


class Outcome(Enum):
    SAVED = "everything is saved"
    LATER = "a change of the database is saved later"
    FAILED = "something could not be saved"


def save(blobs: ContainerClient, at_once: bool = True) -> Outcome:
    """Uploads changed files of the runs and the database.

    It waits for a save that is running, so that later changes are saved as well.

    Args:
        at_once: Whether to save the database even if it is not due.
    """

    def database() -> Outcome:
        saved = SavedDatabase(DATABASE, HOME, blobs).save(time.time(), at_once)
        return Outcome.SAVED if saved else Outcome.LATER

    def runs() -> Outcome:
        SavedRuns(RUNS, MARKS, blobs).save()
        return Outcome.SAVED

    outcomes = set()
    with _locked():
        for part in (database, runs):
            # A failure of one part does not keep the other from being saved.
            try:
                outcomes.add(part())
            except (AzureError, OSError, sqlite3.Error, OtherWriterError, DamagedError) as error:
                print(f"{part.__name__} not saved: {error}", file=sys.stderr, flush=True)
                outcomes.add(Outcome.FAILED)
    return next(worst for worst in reversed(Outcome) if worst in outcomes)


@contextmanager
def _locked() -> Iterator[None]:
    """Waits for another save, which has a time limit of its own.

    Raises:
        TimeoutError: It has hung.
    """
    end = time.monotonic() + 2 * SAVE_S
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise TimeoutError(f"another save holds {LOCK}") from None
                time.sleep(LOCK_PAUSE_S)
        yield
    finally:
        os.close(lock)


def restore(blobs: ContainerClient) -> None:
    """Downloads the database, unless this machine has one."""
    SavedDatabase(DATABASE, HOME, blobs).restore()


def restore_runs(blobs: ContainerClient, key: str) -> None:
    """Downloads the runs of one experiment, all or none, unless this machine has some."""
    SavedRuns(RUNS, MARKS, blobs).restore(key)


def restore_notebooks(blobs: ContainerClient) -> None:
    """Downloads the notebooks, unless this machine has some; their folder exists afterwards."""
    restore_runs(blobs, NOTEBOOKS.name)
    NOTEBOOKS.mkdir(parents=True, exist_ok=True)


def main(verb: str) -> int:
    name = os.environ["RESULTS_CONTAINER"]
    if verb == "restore":
        try:
            retry(f"{name}/mlflow.db", lambda: restore(container(name)))
        except DamagedError as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    if verb == "restore-notebooks":
        try:
            restore_notebooks(container(name))
        except AzureError as error:
            reason = str(error).partition("\n")[0]
            print(f"the notebooks cannot be restored: {reason}", file=sys.stderr)
            return 1
        return 0
    outcome = save(container(name), at_once=verb == "save")
    if outcome == Outcome.SAVED:
        SAVED.touch()
        count_if_due()
    return int(outcome == Outcome.FAILED)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
