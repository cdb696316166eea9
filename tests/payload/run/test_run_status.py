"""The contents of the file that --status names."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from payload.run.panel import Outlook
from payload.run.run_status import RunStatus
from payload.tracking.report import Report

TRAINING = RunStatus("TRAINING", "/runs/a", mlflow_run="abc")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "status.json"


def test_a_status_is_read_as_it_was_written(file: Path, make_report: Callable[..., Report]) -> None:
    status = TRAINING.after(make_report(return_mean=2.5), Outlook(0.5, 30.0, "time"), 3.5)
    status.write(file)
    assert RunStatus.read(file) == status


def test_a_status_has_the_figures_of_an_iteration(make_report: Callable[..., Report]) -> None:
    assert TRAINING.after(
        make_report(return_mean=2.5), Outlook(0.5, 30.0, "time"), 3.5
    ) == RunStatus(
        state="TRAINING",
        run="/runs/a",
        env_steps=1000,
        steps_per_s=100.0,
        episode_return=2.5,
        best_return=3.5,
        seconds_left=30.0,
        num_env_runners=2,
        mlflow_run="abc",
    )


@pytest.mark.parametrize("outlook", [None, Outlook(0.5, math.nan, "return")], ids=["none", "nan"])
def test_what_is_not_known_is_null(
    file: Path, make_report: Callable[..., Report], outlook: Outlook | None
) -> None:
    TRAINING.after(make_report(), outlook, math.nan).write(file)
    values = json.loads(file.read_text())
    assert [values[key] for key in ("episode_return", "best_return", "seconds_left")] == [None] * 3


def test_a_status_of_three_keys_is_read(file: Path) -> None:
    file.write_text('{"state": "FINISHED", "run": "/runs/a", "reason": "over"}')
    assert RunStatus.read(file) == RunStatus("FINISHED", "/runs/a", "over")


def test_a_run_that_is_over_has_no_env_runners_and_no_time_left(
    make_report: Callable[..., Report],
) -> None:
    status = TRAINING.after(make_report(), Outlook(0.5, 30.0, "time"), 3.5).ended(
        "KILLED", "stopped"
    )
    assert (status.num_env_runners, status.seconds_left, status.steps_per_s) == (0, None, None)


def test_a_run_that_is_over_keeps_its_steps(make_report: Callable[..., Report]) -> None:
    status = TRAINING.after(make_report(), None, 3.5).ended("FINISHED", "over")
    assert (status.state, status.reason, status.env_steps) == ("FINISHED", "over", 1000)
