"""A training in X windows, to its goal and stopped with all processes; a closed terminal."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from tests.payload.command_line import learning, mlflow_run, payload, run_folder
from tests.payload.run.test_window_end_to_end import LONG, training

pytestmark = [pytest.mark.slow, pytest.mark.chaos]


def test_a_training_that_sees_windows_learns(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with training(tmp_path, tmp_path_factory.mktemp("packages")) as windowed:
        output, _ = windowed.process.communicate(timeout=400)
        assert re.search(r"FINISHED: .*0\.35", output), output
    played = payload(tmp_path, "evaluate", "--explore", str(run_folder(tmp_path)))
    mean = re.search(r"return ([-\d.]+) \+-", played.stdout)
    assert mean is not None, played.stdout + played.stderr
    assert float(mean[1]) > 0


def test_sigterm_to_the_process_group_leaves_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with training(tmp_path, tmp_path_factory.mktemp("packages"), *LONG) as windowed:
        assert any(windowed.env_runners().values())
        os.killpg(windowed.process.pid, signal.SIGTERM)
        output, _ = windowed.process.communicate(timeout=60)
        assert "KILLED: stopped by SIGTERM" in output
        assert windowed.all() == []


def test_a_terminal_that_is_closed_ends_the_run_in_order(tmp_path: Path) -> None:
    with learning(tmp_path) as process:
        os.killpg(process.pid, signal.SIGHUP)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 128 + signal.SIGHUP, output
    assert list((run_folder(tmp_path) / "checkpoints").glob("checkpoint_*")), output
    assert mlflow_run(tmp_path).info.status == "KILLED", output
