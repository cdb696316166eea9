"""A benchmark's results: figures, bars and whether they are met, tables, a JSON file."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import psutil
from rich.console import Console
from rich.table import Table

from bench.intervals import Interval, median_interval
from payload.atomic_file import replace_text
from payload.run.ray_cluster import available_cpus
from payload.tracking.run_parameters import PACKAGES, git_commit


@dataclass(frozen=True)
class Figure:
    """The result of one measurement."""

    name: str
    value: float
    unit: str
    what: str
    """For people."""
    round: int = 1
    """Measurements that are compared alternate, once per round."""


@dataclass(frozen=True)
class Measured:
    """A figure over the rounds in which it was measured."""

    rounds: dict[int, float]
    unit: str
    what: str

    @property
    def median(self) -> Interval:
        return median_interval(list(self.rounds.values()))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self.median), "rounds": self.rounds, "unit": self.unit, "what": self.what}


def over_rounds(figures: Iterable[Figure]) -> dict[str, Measured]:
    """Groups the rounds of each figure, by its name."""
    measured: dict[str, Measured] = {}
    for figure in figures:
        entry = Measured({}, figure.unit, figure.what)
        measured.setdefault(figure.name, entry).rounds[figure.round] = figure.value
    return measured


@dataclass(frozen=True)
class Bar:
    limit: float
    side: Literal["at least", "at most"]

    def __str__(self) -> str:
        return f"{self.side} {self.limit:g}"


@dataclass(frozen=True)
class Comparison:
    name: str
    what: str
    interval: Interval
    bar: Bar

    @property
    def value(self) -> float:
        return self.interval.value

    @property
    def met(self) -> bool:
        if self.bar.side == "at least":
            return self.value >= self.bar.limit
        return self.value <= self.bar.limit

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self.interval),
            "bar": str(self.bar),
            "met": self.met,
            "what": self.what,
        }


def machine() -> dict[str, Any]:
    """Returns what a figure depends on: machine, its load, date, git commit, versions."""
    return {
        "machine": {
            "cpu": _cpu_model(),
            "cores": available_cpus(),
            "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
            # Other work on the machine makes every figure worse, and some more than others.
            "load_average_1min": round(os.getloadavg()[0], 2),
        },
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "git_commit": git_commit(),
        "versions": {
            "python": sys.version.split()[0],
            **{package: version(package) for package in PACKAGES},
        },
    }


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replaces a JSON file; a number that is not finite becomes null."""
    replace_text(path, json.dumps(_finite(content), indent=2, allow_nan=False) + "\n")


def figure_table(measured: Iterable[Measured]) -> Table:
    table = Table("Measured", title="Figures", title_justify="left")
    table.add_column("Value", justify="right")
    table.add_column("Unit")
    for figure in measured:
        table.add_row(figure.what, with_interval(figure.median), figure.unit)
    return table


def comparison_table(comparisons: list[Comparison]) -> Table:
    table = Table("Compared", title="Bars", title_justify="left")
    table.add_column("Value", justify="right")
    table.add_column("Bar")
    table.add_column("")
    for comparison in comparisons:
        verdict = "[green]met[/green]" if comparison.met else "[red]missed[/red]"
        value = with_interval(comparison.interval)
        table.add_row(comparison.what, value, str(comparison.bar), verdict)
    return table


def number(value: float) -> str:
    """Writes a number for a table: three figures at least, thousands apart."""
    if not math.isfinite(value):
        return "never" if value > 0 else "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write_comparison(
    path: Path,
    measured: Mapping[str, Measured],
    compared: list[Comparison],
    problems: Mapping[str, str],
    console: Console,
    **about: Any,
) -> None:
    """Prints what was measured and compared; writes it, and what failed, to a JSON file."""
    content = {
        "figures": {name: figure.to_json() for name, figure in measured.items()},
        "comparisons": {comparison.name: comparison.to_json() for comparison in compared},
        "problems": problems,
    }
    write_json(path, {**about, **content})
    console.print(figure_table(measured.values()))
    console.print(comparison_table(compared))
    console.print(f"Written to {path}")


def with_interval(interval: Interval) -> str:
    """Writes a median with its interval, if there is one."""
    value = number(interval.value)
    if interval.low == interval.high:
        return value
    return f"{value} ({number(interval.low)} to {number(interval.high)})"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else os.uname().machine
