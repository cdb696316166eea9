"""MLflow's database in the results account: the newest state, and earlier ones by hour and day.

The newest state is a consistent, checked and compressed snapshot. Only the head that restored or
saved it last may replace it. The copies are made within the account from the newest state.
"""

from __future__ import annotations

import gzip
import os
import shutil
import sys
import uuid
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.storage.blob import BlobClient, ContainerClient

from .database_snapshot import check, empty_folder, snapshot, unpack
from .files import replace

NEWEST = "mlflow.db.gz"
PLAIN = "mlflow.db"
"""The newest state as earlier versions of volley have saved it."""
COPIES = "database/"
COPY = f"{COPIES}%Y-%m-%dT%H.db.gz"
"""A copy's name: the hour, in UTC."""
HOURLY, DAILY = timedelta(days=1), timedelta(days=7)
"""Copies of every hour and of every day are kept for so long."""
RATE = 2**20
"""Bytes of the database that are uploaded a second, on average: a large one less often."""
MAX_PAUSE_S = 600.0
"""A change is uploaded after this time however large the database is."""
PRIVATE = 0o600


class OtherWriterError(Exception):
    """Another machine has replaced the database since this machine read it."""


class SavedDatabase:
    """The database of this machine and its copies in the results account."""

    def __init__(self, database: Path, state: Path, blobs: ContainerClient) -> None:
        """Prepares to restore, which writes beside the database only, or to save.

        Args:
            state: The folder to which saving writes.
        """
        self._file, self._state, self._blobs = database, state, blobs
        self._restored = database.with_name("mlflow.db.restored")
        """ETag of the snapshot that this machine restored."""
        self._etag = state / "mlflow.db.etag"
        """ETag of the last snapshot that this machine saved."""
        self._saved = state / "mlflow.db.change"
        """What was saved last, by `_change`, and when."""
        self._copied = state / "mlflow.db.copied"
        """Name of the last copy."""
        self._writer = state / "writer"
        """The id of this machine, which is part of its snapshots."""

    def save(self, now: float, at_once: bool) -> bool:
        """Uploads the database if it has changed; returns whether its newest state is saved.

        Args:
            at_once: Whether not to wait until the pause for a database of this size is over.

        Raises:
            AzureError, OSError, sqlite3.Error: The database could not be saved.
            DamagedError: What is saved stays as it is.
            OtherWriterError: Another machine has replaced the snapshot.
        """
        if not self._file.is_file():
            return True
        change = self._change()
        saved, _, time_saved = text_of(self._saved).partition("@")
        if saved == change:
            return True
        pause = min(self._file.stat().st_size / RATE, MAX_PAUSE_S)
        if not at_once and time_saved and 0 <= now - float(time_saved) < pause:
            return False
        blob = self._blobs.get_blob_client(NEWEST)
        with empty_folder(self._state) as folder:
            snapshot(self._file, folder / "snapshot")
            packed = folder / "packed"
            with (folder / "snapshot").open("rb") as plain, gzip.open(packed, "wb", 1) as file:
                shutil.copyfileobj(plain, file)
            etag = self._upload(blob, packed)
        replace(self._etag, etag.encode(), PRIVATE)
        replace(self._saved, f"{change}@{now}".encode(), PRIVATE)
        print(f"saved {blob.url}", flush=True)
        self._keep_copy(blob, now)
        return True

    def restore(self) -> None:
        """Downloads the newest state, unless this machine has a database.

        Raises:
            DamagedError: The saved database is damaged.
        """
        if self._file.exists():
            return
        for name in (NEWEST, PLAIN):
            try:
                download = self._blobs.download_blob(name)
            except ResourceNotFoundError:
                continue
            with empty_folder(self._file.parent) as folder:
                received, plain = folder / "received", folder / "plain"
                with received.open("wb") as file:
                    download.readinto(file)
                unpack(received, plain)
                check(plain)
                plain.chmod(PRIVATE)
                with plain.open("rb") as file:
                    os.fsync(file.fileno())
                # The ETag first: a database without it would be uploaded as a new one.
                etag = download.properties.etag if name == NEWEST else ""
                replace(self._restored, etag.encode(), PRIVATE)
                plain.replace(self._file)
            print(f"restored MLflow's database of {download.properties.last_modified}")
            return
        print("the results account is new: MLflow starts with an empty database")

    def _change(self) -> str:
        """Returns a text that differs when the database has changed."""
        files = (self._file, self._file.with_name("mlflow.db-wal"))
        return str([path.stat().st_mtime_ns for path in files if path.exists()])

    def _upload(self, blob: BlobClient, packed: Path) -> str:
        """Replaces the snapshot; returns the ETag of the new one."""
        metadata = {"writer": self._writer_id()}
        etag = self._last_etag()
        with packed.open("rb") as content:
            try:
                answer = blob.upload_blob(content, metadata=metadata, **only_if(etag))
            except (ResourceModifiedError, ResourceExistsError):
                # The snapshot may be this machine's: the response to an upload can be lost.
                etag = self._etag_of_own(blob)
                content.seek(0)
                answer = blob.upload_blob(content, metadata=metadata, **only_if(etag))
        if not etag:
            with suppress(ResourceNotFoundError):
                self._blobs.delete_blob(PLAIN)
        return str(answer["etag"])

    def _last_etag(self) -> str:
        """Returns the ETag of what this machine saved or restored last; "" at first."""
        files = [file for file in (self._etag, self._restored) if file.exists()]
        return text_of(max(files, key=lambda file: file.stat().st_mtime, default=self._etag))

    def _etag_of_own(self, blob: BlobClient) -> str:
        """Returns the ETag of this machine's snapshot, or "" where there is none."""
        try:
            properties = blob.get_blob_properties()
        except ResourceNotFoundError:
            return ""
        if properties.metadata.get("writer") != self._writer_id():
            raise OtherWriterError(
                f"{blob.url} was written by another cluster since this cluster read it; "
                "two clusters cannot share one results account"
            )
        return str(properties.etag)

    def _writer_id(self) -> str:
        if not self._writer.exists():
            replace(self._writer, uuid.uuid4().hex.encode(), PRIVATE)
        return self._writer.read_text()

    def _keep_copy(self, blob: BlobClient, now: float) -> None:
        """Copies the first state of each hour, and deletes the copies that are too old."""
        moment = datetime.fromtimestamp(now, timezone.utc)
        name = moment.strftime(COPY)
        if text_of(self._copied) == name:
            return
        try:
            self._blobs.get_blob_client(name).start_copy_from_url(blob.url)
            for old in too_old(self._blobs.list_blob_names(name_starts_with=COPIES), moment):
                with suppress(ResourceNotFoundError):
                    self._blobs.delete_blob(old)
        except AzureError as error:
            # The database is saved; the next save tries the copy again.
            print(f"no copy of the database: {error}", file=sys.stderr, flush=True)
            return
        replace(self._copied, name.encode(), PRIVATE)


def text_of(file: Path) -> str:
    """Returns the content of a small file; "" if there is none."""
    return file.read_text() if file.exists() else ""


def only_if(etag: str) -> dict[str, Any]:
    """Returns upload_blob's condition: the blob is unchanged, or does not exist."""
    if not etag:
        return {"overwrite": False}
    return {"overwrite": True, "etag": etag, "match_condition": MatchConditions.IfNotModified}


def too_old(names: Iterable[str], now: datetime) -> list[str]:
    """Returns the copies to delete: the last day's are kept, and the first of each day's."""
    old, days = [], set()
    for name in sorted(names):
        try:
            made = datetime.strptime(name, COPY).replace(tzinfo=timezone.utc)
        except ValueError:
            continue  # Not one of ours.
        is_first = made.date() not in days
        days.add(made.date())
        age = now - made
        if age > DAILY or (age > HOURLY and not is_first):
            old.append(name)
    return old
