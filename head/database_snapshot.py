"""A snapshot of MLflow's database: taken while the database is in use, checked, and unpacked."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
import time
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

SNAPSHOT_S, LOCKED_S = 300.0, 1.0
"""Limits of a snapshot, and of one try while the database is locked."""
SQLITE = b"SQLite format 3\0"
"""Each database begins with it."""
DAMAGED = "MLflow's database is damaged ({}). An earlier state: docs/azure.md#what-is-kept"


class DamagedError(Exception):
    """SQLite finds the database damaged."""


@contextmanager
def empty_folder(parent: Path) -> Iterator[Path]:
    """Makes a folder for one snapshot; what a killed process left in it is removed."""
    folder = parent / ".mlflow.db.snapshot"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def snapshot(database: Path, target: Path) -> None:
    """Copies a database that is in use.

    Raises:
        DamagedError: SQLite finds the copy damaged.
        TimeoutError: The database was locked for SNAPSHOT_S.
    """
    end = time.monotonic() + SNAPSHOT_S

    def limit(status: int, *_: int) -> None:
        locked = status not in (sqlite3.SQLITE_OK, sqlite3.SQLITE_DONE)
        if locked and time.monotonic() > end:  # A copy in one step may itself take longer.
            raise TimeoutError(f"{database} was locked for {SNAPSHOT_S:.0f} s")

    # Read-only: it must not leave a journal that MLflow's user cannot write.
    source = f"{database.as_uri()}?mode=ro"
    try:
        with (
            closing(sqlite3.connect(source, timeout=LOCKED_S, uri=True)) as live,
            closing(sqlite3.connect(target)) as copy,
        ):
            live.backup(copy, progress=limit)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        raise DamagedError(DAMAGED.format(error)) from None
    check(target)


def check(database: Path) -> None:
    """Raises DamagedError if SQLite finds a database damaged."""
    try:
        with closing(sqlite3.connect(database)) as connection:
            (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        answer = str(error)
    if answer != "ok":
        raise DamagedError(DAMAGED.format(answer.partition("\n")[0]))


def unpack(received: Path, plain: Path) -> None:
    """Unpacks a snapshot; one of an earlier version of volley is not compressed.

    Raises:
        DamagedError: It is neither.
    """
    with received.open("rb") as file:
        is_plain = file.read(len(SQLITE)) == SQLITE
    if is_plain:
        received.replace(plain)
        return
    try:
        with gzip.open(received) as packed, plain.open("wb") as file:
            shutil.copyfileobj(packed, file)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DamagedError(DAMAGED.format(error)) from None
