"""Faults while it trains: `make chaos` runs them all and prints what each one has cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster
from rich.console import Console
from rich.table import Table

from tests.chaos.nodes import start_cluster
from tests.project import ROOT

TABLE = ROOT / "results" / "chaos.json"


@dataclass(frozen=True)
class Row:
    """One fault in the table."""

    fault: str
    lost: str
    recovery_s: float
    """From the fault until the run was as before, or had ended in order."""


ROWS: list[Row] = []


@pytest.fixture
def record() -> Callable[[str, str, float], None]:
    """Puts a fault into the table, whether or not the test then holds it against its bar."""

    def record(fault: str, lost: str, recovery_s: float) -> None:
        ROWS.append(Row(fault, lost, round(recovery_s, 1)))

    return record


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head for the driver alone and three nodes, each of which has room for one env runner."""
    with start_cluster(nodes=3) as cluster:
        yield cluster


def pytest_terminal_summary() -> None:
    if not ROWS:
        return
    table = Table("fault", "lost", "seconds to recover")
    for row in ROWS:
        table.add_row(row.fault, row.lost, f"{row.recovery_s:.1f}")
    Console(width=120).print(table)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(json.dumps([asdict(row) for row in ROWS], indent=1))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the run is started; its results lie below."""
    return tmp_path
