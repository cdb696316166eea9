"""The plot of a run's learning curve."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.image import imread

from payload.run.run_folder import RunFolder
from payload.tracking.learning_curve import draw_learning_curve
from payload.tracking.report import Report

HEIGHT_WIDTH_RGBA = (540, 960, 4)


@pytest.fixture
def run(tmp_path: Path, make_report: Callable[..., Report]) -> RunFolder:
    """A run whose first iterations finished no episode."""
    folder = RunFolder(tmp_path)
    for iteration, mean in enumerate([math.nan, math.nan, -20.0, -10.0, 5.0, 18.0]):
        steps = 100_000 * iteration
        folder.append_progress(
            make_report(env_steps=steps, return_mean=mean, return_min=mean - 1, return_max=mean + 1)
        )
    return folder


def draw(run: RunFolder, goal: float | None = None) -> bytes:
    draw_learning_curve(run.progress_file, run.learning_curve, "IMPALA on Pong", goal)
    return run.learning_curve.read_bytes()


def test_the_curve_is_a_picture_of_960_by_540(run: RunFolder) -> None:
    draw(run)
    assert imread(run.learning_curve).shape == HEIGHT_WIDTH_RGBA


def test_the_curve_shows_the_returns(run: RunFolder, make_report: Callable[..., Report]) -> None:
    before = draw(run)
    run.append_progress(make_report(env_steps=600_000, return_mean=0.0))
    assert draw(run) != before


def test_the_curve_shows_the_goal(run: RunFolder) -> None:
    assert draw(run, goal=18) != draw(run)


@pytest.mark.parametrize("rows", [0, 1, 2], ids=["no row", "one row", "only nan"])
def test_a_run_without_a_return_has_a_picture_too(run: RunFolder, rows: int) -> None:
    lines = run.progress_file.read_text().splitlines(keepends=True)
    run.progress_file.write_text("".join(lines[: 1 + rows]))
    draw(run)
    assert imread(run.learning_curve).shape == HEIGHT_WIDTH_RGBA


def test_a_row_that_a_full_disk_cut_off_is_left_out(run: RunFolder) -> None:
    before = draw(run)
    with run.progress_file.open("a") as file:
        file.write("600000,70")
    assert draw(run) == before
