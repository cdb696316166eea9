"""Checks the embedded MLflow database before a training that could not write to it."""

import sqlite3
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from payload.errors import TemporaryError, UserError

LOCKED_AFTER_S = 10.0
"""Another training may hold the lock for a moment."""


def check_database(file: Path) -> None:
    """Checks that the installed MLflow can write to a database, if it exists.

    Raises:
        UserError: It is damaged, cannot be written, or was made by a newer MLflow.
        TemporaryError: Another program keeps it locked.
    """
    if not file.exists():
        return
    address = f"{file.absolute().as_uri()}?mode=rw"
    try:
        with closing(sqlite3.connect(address, LOCKED_AFTER_S, uri=True)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            tables = connection.execute(
                "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'"
            )
            version = ""
            if tables.fetchone() is not None:
                (version,) = connection.execute(
                    "SELECT version_num FROM alembic_version"
                ).fetchone()
    except sqlite3.Error as error:
        if "locked" in str(error):
            raise TemporaryError(
                f"{file}: another program has locked MLflow's database for {LOCKED_AFTER_S:.0f} s"
            ) from None
        raise UserError(
            f"{file}: MLflow's database cannot be used: {error}. Next: move it away, or give "
            "another --results"
        ) from None
    if version and not _knows(version):
        raise UserError(
            f"{file}: a newer MLflow has made this database (revision {version}). Next: install "
            "that MLflow, or give another --results"
        )


def _knows(version: str) -> bool:
    """Whether the installed MLflow has the migration to a revision of Alembic's."""
    mlflow = find_spec("mlflow")
    assert mlflow is not None
    (package,) = mlflow.submodule_search_locations or []
    return any(Path(package, "store/db_migrations/versions").glob(f"{version}_*.py"))
