"""The head's MLflow after an upgrade: databases of an older MLflow, and migrations that fail."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from mlflow.store.db.utils import _get_alembic_config
from mlflow.store.tracking.dbmodels.initial_models import Base

from head.mlflow_database import newest_version, version
from tests.head.installed_head import InstalledHead

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database before MLflow's newest migration, with a mark in it."""
    file = tmp_path_factory.mktemp("older") / "mlflow.db"
    url = f"sqlite:///{file}"
    config: Config = _get_alembic_config(url)
    newest = ScriptDirectory.from_config(config).get_revision("head")
    assert newest is not None
    assert isinstance(newest.down_revision, str)
    engine = sqlalchemy.create_engine(url)
    Base.metadata.create_all(engine)
    command.upgrade(config, newest.down_revision)
    engine.dispose()
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("INSERT INTO experiments (name) VALUES ('mine')")
    return file


class Head(InstalledHead):
    """A head with a database of MLflow."""

    def __init__(self, root: Path, database: Path) -> None:
        super().__init__(root)
        self.database = self.root / "var/lib/volley-mlflow/mlflow.db"
        self.copy = self.database.with_name("mlflow.db.before-upgrade")
        shutil.copy(database, self.database)

    def upgrade(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "head.mlflow_database"],
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def names(self) -> list[str]:
        with closing(sqlite3.connect(self.database)) as database:
            return [name for (name,) in database.execute("SELECT name FROM experiments")]

    def tables(self) -> list[str]:
        """Returns the tables in the order in which they were made."""
        with closing(sqlite3.connect(self.database)) as database:
            tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return [name for (name,) in tables]

    def files(self) -> set[str]:
        return {path.name for path in self.database.parent.iterdir()}


@pytest.fixture
def head(tmp_path: Path, older: Path) -> Head:
    return Head(tmp_path, older)


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory, older: Path) -> Head:
    """A head that has migrated the older database."""
    head = Head(tmp_path_factory.mktemp("migrated"), older)
    done = head.upgrade()
    assert done.returncode == 0, done.stderr
    return head


def test_an_older_database_is_migrated_and_leaves_no_copy(migrated: Head) -> None:
    assert version(migrated.database) == newest_version()
    assert migrated.names() == ["mine"]
    assert migrated.files() == {"mlflow.db"}


def test_a_database_of_this_mlflow_is_left_alone(migrated: Head) -> None:
    before = migrated.database.read_bytes()
    done = migrated.upgrade()
    assert (done.returncode, done.stdout) == (0, "")
    assert migrated.database.read_bytes() == before


def test_a_migration_that_fails_leaves_the_database_as_it_was(head: Head, migrated: Head) -> None:
    *_, last = [table for table in migrated.tables() if table not in head.tables()]
    with closing(sqlite3.connect(head.database)) as database, database:
        database.execute(f"CREATE TABLE {last} (mine TEXT)")  # In the migration's way.
        content = list(database.iterdump())
    done = head.upgrade()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("MLflow's database cannot be migrated: ")
    with closing(sqlite3.connect(head.database)) as database:
        assert list(database.iterdump()) == content
    assert head.files() == {"mlflow.db"}


def test_a_migration_that_was_killed_begins_again_with_the_copy(head: Head) -> None:
    shutil.copy(head.database, head.copy)
    with closing(sqlite3.connect(head.database)) as database, database:
        database.execute("DROP TABLE experiments")
    done = head.upgrade()
    assert done.returncode == 0, done.stderr
    assert version(head.database) == newest_version()
    assert head.names() == ["mine"]
    assert head.files() == {"mlflow.db"}


def test_a_head_without_a_database_has_nothing_to_migrate(head: Head) -> None:
    head.database.unlink()
    assert head.upgrade().returncode == 0
    assert head.files() == set()
