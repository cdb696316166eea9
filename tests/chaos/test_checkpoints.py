"""The disk fills up or corrupts the newest checkpoint; the run resumes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from payload.tracking.metrics import STEPS
from tests.chaos.runs import config, rows, wait_until
from tests.payload.command_line import learning, run_folder, wait_for
from tests.payload.small_disk import fill, small_disk

pytestmark = [pytest.mark.slow, pytest.mark.chaos]

Record = Callable[[str, str, float], None]


def checkpoints(folder: Path) -> list[Path]:
    return sorted((run_folder(folder) / "checkpoints").glob("checkpoint_*"))


def flip(path: Path) -> None:
    """Flips a bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def resume(folder: Path, *options: str) -> float:
    """Resumes a run until it passes its previous step; returns the seconds since the command."""
    before, begun = rows(folder)[-1][STEPS], time.monotonic()
    with learning(folder, "--resume", *config(env_runners=1), *options):
        wait_until(folder, lambda row: row[STEPS] > before, begun, 120)
        return time.monotonic() - begun


def test_a_disk_that_fills_up_in_the_middle_of_a_checkpoint(folder: Path, record: Record) -> None:
    with small_disk(folder) as disk:
        elsewhere = ("--tracking-uri", f"sqlite:///{folder.parent}/mlflow.db")
        with learning(disk, *config(env_runners=1), *elsewhere) as process:
            wait_for(lambda: checkpoints(disk))
            fill(disk / "somebody's video.mp4")
            assert process.stdout is not None
            output = process.stdout.read()
            assert process.wait(timeout=120) == 1, output
        (disk / "somebody's video.mp4").unlink()
        seconds = resume(disk, *elsewhere)
    record(
        "disk full in a checkpoint; space made, --resume", "since the checkpoint before", seconds
    )
    assert "is intact" in output


@pytest.mark.parametrize(
    ("fault", "spoil"),
    [
        ("newest checkpoint truncated; --resume", lambda path: os.truncate(path, 1000)),
        ("one byte of the newest checkpoint flipped; --resume", flip),
    ],
)
def test_a_spoiled_checkpoint(
    folder: Path, record: Record, fault: str, spoil: Callable[[Path], None]
) -> None:
    with learning(folder, *config(env_runners=1)) as process:
        wait_for(lambda: len(checkpoints(folder)) >= 2)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        process.stdout.read()
        process.wait(timeout=120)
    newest = checkpoints(folder)[-1]
    spoil(next(newest.rglob("module_state.pkl")))
    seconds = resume(folder)
    log = (run_folder(folder) / "driver_log.txt").read_text()
    record(fault, "since the checkpoint before", seconds)
    assert f"{newest.name}: the checkpoint is damaged: checksum of algorithm/" in log
