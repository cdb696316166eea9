"""head.mlflow_database: makes MLflow's database one of the installed MLflow, or leaves it alone.

A migration changes one table after the other: one that fails, or is killed, would leave a database
that no MLflow can use. So the copy that it began with is put back.
"""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from alembic.script import ScriptDirectory

from .paths import MLFLOW

DATABASE = MLFLOW / "mlflow.db"
COPY = MLFLOW / "mlflow.db.before-upgrade"
"""Exists while a migration runs, and after one that was killed."""


def upgrade() -> None:
    """Migrates the database, if there is one and it needs that.

    Raises:
        CalledProcessError: The migration has failed; the database is as it was before.
        OSError, sqlite3.Error: It cannot be copied.
    """
    if COPY.exists():
        print("a migration of MLflow's database did not end: starting again with the copy")
        put_back()
    if not DATABASE.exists() or version(DATABASE) == newest_version():
        return
    print(f"migrating MLflow's database from {version(DATABASE)} to {newest_version()}", flush=True)
    copy(DATABASE, COPY)
    command = [sys.executable, "-m", "mlflow", "db", "upgrade", f"sqlite:///{DATABASE}"]
    try:
        subprocess.run(command, check=True)
    except subprocess.CalledProcessError:
        put_back()
        raise
    COPY.unlink()


def version(database: Path) -> str:
    """Returns Alembic's revision of a database; empty where there is none."""
    with closing(sqlite3.connect(database)) as connection:
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.OperationalError:  # No such table.
            return ""
    return str(row[0]) if row else ""


def newest_version() -> str | None:
    """Returns Alembic's revision of the installed MLflow's databases."""
    mlflow = find_spec("mlflow")
    assert mlflow is not None, "the head's Python environment has MLflow"
    (package,) = mlflow.submodule_search_locations or []
    return ScriptDirectory(str(Path(package, "store/db_migrations"))).get_current_head()


def copy(database: Path, target: Path) -> None:
    """Writes a consistent copy; `target` has all of it or does not exist, after a power cut too."""
    aside = target.with_name(f"{target.name}.new")
    aside.unlink(missing_ok=True)
    with closing(sqlite3.connect(database)) as live, closing(sqlite3.connect(aside)) as new:
        live.backup(new)
    with aside.open("rb") as file:
        os.fsync(file.fileno())
    aside.replace(target)


def put_back() -> None:
    for journal in ("-journal", "-wal", "-shm"):
        DATABASE.with_name(DATABASE.name + journal).unlink(missing_ok=True)
    COPY.replace(DATABASE)


def main() -> int:
    try:
        upgrade()
    except (OSError, sqlite3.Error, subprocess.CalledProcessError) as error:
        print(f"MLflow's database cannot be migrated: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
