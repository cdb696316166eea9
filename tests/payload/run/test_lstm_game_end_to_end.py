"""An LSTM on the fast path of Atari games, from training to evaluation and export."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local_ray import local_ray
from tests.payload.command_line import ALONE, in_process, with_database
from volley.cli import main

pytestmark = pytest.mark.slow

CONFIG = ALONE.replace("{", '{"use_lstm": true, "lstm_cell_size": 32, "frame_stack": 1, ')


def test_a_game_is_trained_played_and_exported_with_a_memory(tmp_path: Path) -> None:
    folder = with_database(tmp_path)
    local_ray()
    stop = '{"training_iteration": 3}'
    done = in_process(folder, "train", "--run", "APPO", "--config", CONFIG, "--stop", stop)
    assert "FINISHED" in done.stdout, done.stdout + done.stderr
    played = in_process(folder, "evaluate", "--episodes", "1")
    assert "return" in played.stdout, played.stdout + played.stderr
    exported = in_process(folder, "export", "--onnx", "policy.onnx", command=main)
    assert exported.returncode == 0, exported.stderr
    assert "the same actions" in exported.stdout
