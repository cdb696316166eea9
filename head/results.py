"""head.results save | save-due | export KEY | restore: the results to Blob, or back.

The results, which are MLflow's database, the runs and what the queue knows, outlive the cluster.
`save` saves everything, at every end; `save-due`, every 30 s, leaves a large database for a later
time. `export` writes an archive of an experiment's runs to stdout. These run as identity. `restore`
downloads the database; it runs as mlflow.
"""

import fcntl
import os
import sqlite3
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from io import BytesIO
from typing import IO

from azure.core.exceptions import AzureError
from azure.storage.blob import ContainerClient

from .blob import container, retry
from .database_snapshot import DamagedError
from .disk import LEAST, free, free_bytes
from .identity.restored_runs import END
from .marks import LOCK, MARKS
from .paths import COST, EXPERIMENTS, IDENTITY, MLFLOW, RUNS, SAVED
from .queue.store import Store
from .saved_database import OtherWriterError, SavedDatabase
from .saved_queue import SavedOutputs, save_queue
from .saved_runs import SAVE_S, SavedRuns
from .stored import count_if_due

DATABASE = MLFLOW / "mlflow.db"
QUEUE_HASH = IDENTITY / "queue.sha256"
MARKS_OF_OUTPUTS = IDENTITY / "saved-outputs"
LOCK_PAUSE_S = 0.2


class Outcome(Enum):
    SAVED = "everything is saved"
    LATER = "a change of the database is saved later"
    FAILED = "something could not be saved"


def save(blobs: ContainerClient, at_once: bool = True) -> Outcome:
    """Uploads changed files of the runs, the database, the queue and its experiments' output.

    It waits for a save that is running, so that later changes are saved as well.

    Args:
        at_once: Whether to save the database even if it is not due.
    """

    def database() -> Outcome:
        saved = SavedDatabase(DATABASE, IDENTITY, blobs).save(time.time(), at_once)
        return Outcome.SAVED if saved else Outcome.LATER

    def runs() -> Outcome:
        SavedRuns(RUNS, MARKS, blobs).save()
        return Outcome.SAVED

    def queue() -> Outcome:
        if EXPERIMENTS.is_dir():
            save_queue(Store(EXPERIMENTS), blobs, QUEUE_HASH, COST)
            SavedOutputs(EXPERIMENTS, MARKS_OF_OUTPUTS, blobs).save()
        return Outcome.SAVED

    outcomes = set()
    with _locked():
        for part in (database, runs, queue):
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
    lock = os.open(LOCK, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
    SavedDatabase(DATABASE, IDENTITY, blobs).restore()


def export(blobs: ContainerClient, key: str, stream: IO[bytes]) -> str:
    """Writes the runs of one experiment to an archive; returns why they are not in it, or "".

    There are none in it if this machine has some.
    """
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        try:
            reason = "" if (RUNS / key).exists() else _export(blobs, key, archive)
        except (AzureError, OSError) as error:
            reason = str(error).partition("\n")[0]
        end, content = tarfile.TarInfo(END), reason.encode()
        end.size = len(content)
        archive.addfile(end, BytesIO(content))
    return reason


def _export(blobs: ContainerClient, key: str, archive: tarfile.TarFile) -> str:
    size = sum(blob.size for blob in blobs.list_blobs(name_starts_with=f"runs/{key}/"))
    if free_bytes() - size < LEAST:
        return f"{free()}, and the runs have {size / 2**30:.1f} GiB"
    SavedRuns(RUNS, MARKS, blobs).export(key, archive)
    return ""


def main(verb: str, *keys: str) -> int:
    name = os.environ["RESULTS_CONTAINER"]
    if verb == "restore":
        try:
            retry(f"{name}/mlflow.db", lambda: restore(container(name)))
        except DamagedError as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    if verb == "export":
        (key,) = keys
        reason = export(container(name), key, sys.stdout.buffer)
        print(f"{key}: {reason or 'sent'}", file=sys.stderr)
        return int(bool(reason))
    outcome = save(container(name), at_once=verb == "save")
    if outcome == Outcome.SAVED:
        SAVED.touch()
        count_if_due()
    return int(outcome == Outcome.FAILED)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
