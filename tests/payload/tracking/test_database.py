"""A database that MLflow could not write to at the end is named before the training."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from payload.errors import TemporaryError, UserError
from payload.tracking import database
from payload.tracking.database import check_database
from payload.tracking.mlflow_run import DATABASE
from tests.payload.command_line import with_database

pytestmark = pytest.mark.slow


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database of the installed MLflow."""
    return with_database(tmp_path) / "results" / DATABASE


@pytest.fixture
def connection(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(file)) as connection:
        yield connection


def test_a_database_of_the_installed_mlflow_is_accepted(file: Path) -> None:
    check_database(file)


def test_a_missing_and_an_empty_database_are_mlflows_to_make(tmp_path: Path) -> None:
    check_database(tmp_path / "missing.db")
    (tmp_path / "empty.db").touch()
    check_database(tmp_path / "empty.db")


def test_a_database_of_a_newer_mlflow_is_refused(
    file: Path, connection: sqlite3.Connection
) -> None:
    with connection:
        connection.execute("UPDATE alembic_version SET version_num = 'fffffffffff0'")
    with pytest.raises(UserError, match=r"newer MLflow .*revision fffffffffff0"):
        check_database(file)


def test_a_damaged_database_is_refused(file: Path) -> None:
    file.write_bytes(b"no database" * 1000)
    with pytest.raises(UserError, match="cannot be used: file is not a database"):
        check_database(file)


def test_a_database_that_stays_locked_is_told(
    file: Path, connection: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LOCKED_AFTER_S", 0.1)
    connection.execute("BEGIN EXCLUSIVE")
    with pytest.raises(TemporaryError, match="another program has locked MLflow's database"):
        check_database(file)
