"""results.py save, results.py restore: MLflow's database and the runs, to and from Blob.

A cluster is destroyed and made again; its results go on. The database is saved as a
consistent snapshot; only the head that restored or saved it last may replace it.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob import ContainerClient
from blob import container, write

HOME = Path("/var/lib/volley")
DATABASE = HOME / "mlflow.db"
ETAG = HOME / "mlflow.db.etag"
"""Of the snapshot that this machine knows."""
CHANGE = HOME / "mlflow.db.change"
"""When the saved database had been changed last."""
RUNS = HOME / "runs"
SAVED = HOME / "saved"
"""A mark for each file of RUNS that is in Blob, with the state that was saved."""


def save(blobs: ContainerClient) -> None:
    """Uploads the database if it changed, and each file of the runs that did."""
    if DATABASE.exists():
        save_database(blobs)
    for path in RUNS.rglob("*"):
        # Checkpoints are written aside, in names with a dot, and renamed.
        hidden = any(part.startswith(".") for part in path.relative_to(RUNS).parts)
        if path.is_file() and not path.is_symlink() and not hidden:
            save_file(blobs, path)


def save_database(blobs: ContainerClient) -> None:
    journal = DATABASE.with_name("mlflow.db-wal")
    change = str([path.stat().st_mtime_ns for path in (DATABASE, journal) if path.exists()])
    if CHANGE.exists() and CHANGE.read_text() == change:
        return
    with tempfile.TemporaryDirectory(dir=HOME) as folder:
        snapshot = Path(folder) / "mlflow.db"
        with closing(sqlite3.connect(DATABASE)) as live, closing(sqlite3.connect(snapshot)) as copy:
            live.backup(copy)
        blob = blobs.get_blob_client("mlflow.db")
        only_if: dict[str, Any] = {"overwrite": False}
        if ETAG.exists():
            only_if = {
                "overwrite": True,
                "etag": ETAG.read_text(),
                "match_condition": MatchConditions.IfNotModified,
            }
        try:
            answer = blob.upload_blob(snapshot.read_bytes(), **only_if)
        except (ResourceModifiedError, ResourceExistsError):
            sys.exit(
                f"{blob.url} was written by another cluster since this one read it; "
                "two clusters cannot share one results account"
            )
    ETAG.write_text(answer["etag"])
    CHANGE.write_text(change)
    print(f"saved {blob.url}")


def save_file(blobs: ContainerClient, path: Path) -> None:
    state = path.stat()
    mark = SAVED / path.relative_to(RUNS)
    change = f"{state.st_mtime_ns} {state.st_size}"
    if mark.exists() and mark.read_text() == change:
        return
    blobs.upload_blob(f"runs/{path.relative_to(RUNS)}", path.read_bytes(), overwrite=True)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(change)


def restore(blobs: ContainerClient) -> None:
    """Downloads the database, unless this machine has one."""
    if DATABASE.exists():
        return
    try:
        download = blobs.download_blob("mlflow.db")
    except ResourceNotFoundError:
        print("the results account is new: MLflow starts with an empty database")
        return
    write(DATABASE, download.readall())
    ETAG.write_text(download.properties.etag)
    print(f"restored MLflow's database of {download.properties.last_modified}")


def restore_runs(blobs: ContainerClient, key: str) -> None:
    """Downloads the runs of one experiment, unless this machine has some."""
    if (RUNS / key).exists():
        return
    for blob in blobs.list_blobs(name_starts_with=f"runs/{key}/"):
        path = HOME / blob.name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, blobs.download_blob(blob.name).readall())


def main(verb: str) -> None:
    verbs: dict[str, Callable[[ContainerClient], None]] = {"save": save, "restore": restore}
    verbs[verb](container(os.environ["RESULTS_CONTAINER"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
