"""head.results save | restore | restore-notebooks: MLflow's database and the runs to Blob, or back.

The results outlive the cluster. The database is saved as a consistent snapshot; only the head that
restored or saved it last may replace it.
"""

import fcntl
import os
import shutil
import sqlite3
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.storage.blob import BlobClient, ContainerClient

from .blob import container, retry
from .files import files_of_runs, replace
from .paths import HOME, NOTEBOOKS, RUNS, SAVED
from .stored import count_if_due

DATABASE = HOME / "mlflow.db"
ETAG = HOME / "mlflow.db.etag"
"""ETag of the last snapshot that this machine saved or restored."""
CHANGE = HOME / "mlflow.db.change"
"""Modification time of the database when it was saved last."""
WRITER = HOME / "writer"
"""The id of this machine, which is part of its snapshots."""
MARKS = HOME / "saved"
"""Contains a file for each file of RUNS that is in Blob, with the state that was saved."""
LINK = {"link": "true"}
"""Metadata of a blob that contains the target of a symbolic link."""
LOCK = HOME / "save.lock"
PRIVATE = 0o600
BAD_NAME = 400
"""Azure's answer to a name that a blob cannot have."""


class OtherWriterError(Exception):
    """Another machine has replaced the database since this machine read it."""


def save(blobs: ContainerClient) -> bool:
    """Uploads changed files of the runs and the database; returns whether everything is saved.

    It waits for a save that is running, so that later changes are saved as well.
    """
    saved = True
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for part in (save_database, save_runs):
            # A failure of one part does not keep the other from being saved.
            try:
                part(blobs)
            except (AzureError, OSError, sqlite3.Error, OtherWriterError) as error:
                print(f"{part.__name__}: {error}", file=sys.stderr, flush=True)
                saved = False
    return saved


def save_runs(blobs: ContainerClient) -> None:
    problem: OSError | None = None
    for path in files_of_runs(RUNS):
        try:
            save_file(blobs, path)
        except FileNotFoundError:
            continue  # An old checkpoint, removed meanwhile.
        except OSError as error:
            problem = error
        except UnicodeError:
            print(f"{str(path)!a} is not UTF-8 and stays on the head", file=sys.stderr, flush=True)
        except HttpResponseError as error:
            if error.status_code != BAD_NAME:
                raise
            print(f"{path} stays on the head: {error.reason}", file=sys.stderr, flush=True)
    for path in pruned():
        with suppress(ResourceNotFoundError):
            blobs.delete_blob(blob_of(path))
        mark_of(path).unlink()
    if problem is not None:
        raise problem


def pruned() -> Iterator[Path]:
    """Yields saved files of checkpoints that the payload has removed since.

    If a whole run folder is gone, a person has removed it: its saved files are kept.
    """
    for mark in [path for path in MARKS.rglob("*") if path.is_file()]:
        path = RUNS / mark.relative_to(MARKS)
        checkpoints = [parent for parent in path.parents if parent.name == "checkpoints"]
        if checkpoints and checkpoints[0].is_dir() and not os.path.lexists(path):
            yield path


def save_file(blobs: ContainerClient, path: Path) -> None:
    change = change_of(path)
    mark = mark_of(path)
    if mark.exists() and mark.read_text() == change:
        return
    if path.is_symlink():
        content, metadata = os.readlink(path).encode(), LINK
    else:
        content, metadata = path.read_bytes(), {}
    blobs.upload_blob(blob_of(path), content, metadata=metadata, overwrite=True)
    remember(path, change)


def change_of(path: Path) -> str:
    """Returns a text that differs when a file has changed, or the target of a link."""
    if path.is_symlink():
        return os.readlink(path)
    state = path.stat()
    return f"{state.st_mtime_ns} {state.st_size}"


def remember(path: Path, change: str) -> None:
    mark_of(path).parent.mkdir(parents=True, exist_ok=True)
    mark_of(path).write_text(change)


def mark_of(path: Path) -> Path:
    return MARKS / path.relative_to(RUNS)


def blob_of(path: Path) -> str:
    return f"runs/{path.relative_to(RUNS)}"


def save_database(blobs: ContainerClient) -> None:
    if not DATABASE.exists():
        return
    journal = DATABASE.with_name("mlflow.db-wal")
    change = str([path.stat().st_mtime_ns for path in (DATABASE, journal) if path.exists()])
    if CHANGE.exists() and CHANGE.read_text() == change:
        return
    blob = blobs.get_blob_client("mlflow.db")
    with tempfile.TemporaryDirectory(dir=HOME) as folder:
        snapshot = Path(folder) / "mlflow.db"
        with closing(sqlite3.connect(DATABASE)) as live, closing(sqlite3.connect(snapshot)) as copy:
            live.backup(copy)
        etag = upload(blob, snapshot.read_bytes())
    replace(ETAG, etag.encode(), PRIVATE)
    replace(CHANGE, change.encode(), PRIVATE)
    print(f"saved {blob.url}", flush=True)


def upload(blob: BlobClient, content: bytes) -> str:
    """Replaces the snapshot; returns the ETag of the new one.

    Raises:
        OtherWriterError: Another machine has replaced the snapshot.
    """
    metadata = {"writer": writer()}
    etag = ETAG.read_text() if ETAG.exists() else ""
    try:
        answer = blob.upload_blob(content, metadata=metadata, **only_if(etag))
    except (ResourceModifiedError, ResourceExistsError):
        # The snapshot may be this machine's: the response to an upload can be lost.
        own = etag_of_own(blob)
        answer = blob.upload_blob(content, metadata=metadata, **only_if(own))
    return str(answer["etag"])


def only_if(etag: str) -> dict[str, Any]:
    """Returns upload_blob's condition: the blob is unchanged, or does not exist."""
    if not etag:
        return {"overwrite": False}
    return {"overwrite": True, "etag": etag, "match_condition": MatchConditions.IfNotModified}


def etag_of_own(blob: BlobClient) -> str:
    """Returns the ETag of this machine's snapshot, or "" where there is none."""
    try:
        properties = blob.get_blob_properties()
    except ResourceNotFoundError:
        return ""
    if properties.metadata.get("writer") != writer():
        raise OtherWriterError(
            f"{blob.url} was written by another cluster since this cluster read it; "
            "two clusters cannot share one results account"
        )
    return str(properties.etag)


def writer() -> str:
    if not WRITER.exists():
        replace(WRITER, uuid.uuid4().hex.encode(), PRIVATE)
    return WRITER.read_text()


def restore(blobs: ContainerClient) -> None:
    """Downloads the database, unless this machine has one."""
    if DATABASE.exists():
        return
    try:
        download = blobs.download_blob("mlflow.db")
    except ResourceNotFoundError:
        print("the results account is new: MLflow starts with an empty database")
        return
    content = download.readall()
    # The ETag first: a database without it would be uploaded as a new one.
    replace(ETAG, download.properties.etag.encode(), PRIVATE)
    replace(DATABASE, content, PRIVATE)
    print(f"restored MLflow's database of {download.properties.last_modified}")


def restore_runs(blobs: ContainerClient, key: str) -> None:
    """Downloads the runs of one experiment, all or none, unless this machine has some."""
    if (RUNS / key).exists():
        return
    aside = RUNS / f".{key}"
    shutil.rmtree(aside, ignore_errors=True)
    for blob in blobs.list_blobs(name_starts_with=f"runs/{key}/", include=["metadata"]):
        path = aside / Path(blob.name).relative_to("runs", key)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = blobs.download_blob(blob.name).readall()
        if blob.metadata == LINK:
            path.symlink_to(content.decode())
        else:
            replace(path, content, PRIVATE)
    if aside.exists():
        aside.rename(RUNS / key)
        for path in files_of_runs(RUNS / key):
            remember(path, change_of(path))


def restore_notebooks(blobs: ContainerClient) -> None:
    """Downloads the notebooks, unless this machine has some; their folder exists afterwards."""
    restore_runs(blobs, NOTEBOOKS.name)
    NOTEBOOKS.mkdir(parents=True, exist_ok=True)


def main(verb: str) -> int:
    name = os.environ["RESULTS_CONTAINER"]
    if verb == "restore":
        retry(f"{name}/mlflow.db", lambda: restore(container(name)))
        return 0
    if verb == "restore-notebooks":
        try:
            restore_notebooks(container(name))
        except AzureError as error:
            reason = str(error).partition("\n")[0]
            print(f"the notebooks cannot be restored: {reason}", file=sys.stderr)
            return 1
        return 0
    if not save(container(name)):
        return 1
    SAVED.touch()
    count_if_due()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
