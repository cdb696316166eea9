"""Copies of an environment that want the same port, and how each gets its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.free_port import free_port
from tests.payload.command_line import in_process, with_database

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_here")]

LISTENING = "tests.payload.faulty_environment.listening:Listening-v0"
QUICK = {
    "train_batch_size_per_learner": 64,
    "minibatch_size": 32,
    "num_epochs": 1,
    "min_time_s_per_iteration": 0.1,
}


def train(folder: Path, **config: Any) -> subprocess.CompletedProcess[str]:
    options = ("--config", json.dumps({**QUICK, **config}), "--stop", '{"training_iteration": 1}')
    return in_process(with_database(folder), "train", "--run", "PPO", "--env", LISTENING, *options)


def test_copies_that_want_one_port_are_told_with_their_own_error(tmp_path: Path) -> None:
    copies = {"num_env_runners": 1, "num_envs_per_env_runner": 2}
    done = train(tmp_path, env_config={"port": free_port()}, **copies)
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert "an env runner cannot start: OSError: [Errno 98] Address already in use" in line
    assert "A single copy starts: config.num_envs_per_env_runner: 1" in line


def test_each_env_runner_has_a_number_also_those_that_evaluate(tmp_path: Path) -> None:
    copies = {"num_env_runners": 1, "num_envs_per_env_runner": 1}
    evaluation = {
        "evaluation_interval": 1,
        "evaluation_duration": 2,
        "evaluation_num_env_runners": 1,
    }
    env_config = {"port": free_port(), "worker_index": 0}
    done = train(tmp_path, env_config=env_config, **copies, **evaluation)
    assert done.returncode == 0, done.stdout + done.stderr
