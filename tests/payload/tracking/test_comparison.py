"""Curves of several trainings, and what they have reached."""

from __future__ import annotations

import math
from pathlib import Path

from payload.tracking.comparison import Curves, draw, in_words, write_table
from payload.tracking.metrics import STEPS

SUCCESS = "env_runners/info/success"


def rows(*values: float | None) -> list[dict[str, float]]:
    """Returns a row for each value; None where a row has no such column."""
    steps: list[dict[str, float]] = [{STEPS: 100.0 * (i + 1)} for i in range(len(values))]
    return [
        row if value is None else {**row, SUCCESS: value}
        for row, value in zip(steps, values, strict=True)
    ]


def test_a_metric_is_compared_where_the_seeds_know_it(tmp_path: Path) -> None:
    known = Curves("known", [rows(math.nan, 0.5, 1.0), rows(0.0, math.nan, 1.0)])
    never = Curves("never", [rows(0.0, 1.0), rows(None, None)])
    draw([known, never], SUCCESS, tmp_path / "curves.png", "title")
    write_table([known, never], SUCCESS, tmp_path / "curves.csv")
    assert (tmp_path / "curves.png").exists()
    assert in_words(never, SUCCESS) == f"never: no {SUCCESS} yet"
    assert "at 300 environment steps" in in_words(known, SUCCESS)
    assert "never" not in (tmp_path / "curves.csv").read_text()
