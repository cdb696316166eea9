"""The metrics of a run as TensorBoard reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch.utils.tensorboard  # noqa: F401 - Its first import starts a process.

from payload.tracking.event_files import EventFiles
from tests.payload.event_files import curves

RETURN = "env_runners/episode_return_mean"


Points = Sequence[tuple[int, float]]


def write(folder: Path, points: Points, before: Points) -> None:
    """Writes a return at each of some steps, as a run does that continues after others."""
    recorded = [(step, {RETURN: value}) for step, value in before]
    events = EventFiles(folder, recorded, before[-1][0] + 1 if before else 0)
    for step, value in points:
        events.log_metrics({RETURN: value}, step)


def test_a_resumed_run_is_one_curve(tmp_path: Path) -> None:
    # It was killed at 320, its last checkpoint was written at 200.
    write(tmp_path, [(100, 1.0), (200, 2.0), (300, 3.0), (320, 4.0)], before=[])
    write(tmp_path, [(200, 2.5), (310, 5.0), (400, 6.0)], before=[(100, 1.0), (200, 2.0)])
    assert curves(tmp_path)[RETURN] == [(100, 1.0), (200, 2.0), (310, 5.0), (400, 6.0)]


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    write(tmp_path, [(0, 1.0), (100, 2.0)], before=[])
    write(tmp_path, [(50, 3.0)], before=[])
    assert curves(tmp_path)[RETURN] == [(50, 3.0)]


def test_a_run_without_event_files_until_a_resume_has_its_whole_curve(
    tmp_path: Path,
) -> None:
    write(tmp_path, [(300, 3.0)], before=[(100, 1.0), (200, 2.0)])
    assert curves(tmp_path)[RETURN] == [(100, 1.0), (200, 2.0), (300, 3.0)]
