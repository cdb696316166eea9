"""Faults during training: `make chaos` injects them all and prints the cost of each."""

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
    """Seconds from the fault until the run was as before or had ended cleanly."""


ROWS: list[Row] = []


@pytest.fixture
def record() -> Callable[[str, str, float], None]:
    """Adds a fault to the table, even if the test then fails on its limit."""

    def record(fault: str, lost: str, recovery_s: float) -> None:
        ROWS.append(Row(fault, lost, round(recovery_s, 1)))

    return record


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head for the driver only, and three nodes with room for one env runner each."""
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
    """The working directory of the run, which holds its results."""
    return tmp_path
