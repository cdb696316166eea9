"""Metrics at Weights & Biases, with the package of a registry: no lock has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.free_port import free_port
from tests.payload import wandb_file
from tests.payload.command_line import payload, steps, with_database
from tests.project import ROOT

pytestmark = pytest.mark.slow

TRAIN = """
run: PPO
env: CartPole-v1
wandb: balance
tags: {team: red}
notes: a try
config: {num_env_runners: 0, train_batch_size_per_learner: 100, minibatch_size: 50, num_epochs: 1,
  min_time_s_per_iteration: 0, fcnet_hiddens: [8], lr: 0.002}
stop: {training_iteration: 3}
"""
SEND = """
import sys
from pathlib import Path
from payload.experiment.settings import Experiment
from payload.tracking.mlflow_run import Tracking
from payload.tracking.wandb_run import WandbRun

folder = Path(sys.argv[1])
tracking = Tracking.embedded(folder, "run")
run = WandbRun(Experiment(wandb="balance"), tracking, folder, {}, print)
run.log_metrics({"return": 1.0}, 100)
run.close("FINISHED")
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wandb and what it requires, in the versions of the lock."""
    folder = tmp_path_factory.mktemp("packages")
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--python", sys.executable]
    lock = ["--constraint", str(ROOT / "requirements/dev.txt")]
    done = subprocess.run(
        [*uv, "--target", str(folder), "wandb", *lock], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"wandb cannot be installed: {done.stderr.splitlines()[-1]}")
    return folder


@pytest.fixture
def environment(packages: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The variables of the processes that a test starts."""
    monkeypatch.setenv("PYTHONPATH", f"{packages}:{ROOT}")
    for variable in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(variable)
    return monkeypatch


def test_an_offline_run_has_metrics_config_and_status(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("WANDB_MODE", "offline")
    (with_database(tmp_path) / "balance.yaml").write_text(TRAIN)
    done = payload(tmp_path, "train", "balance.yaml", "--name", "first")
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (tmp_path / "results/runs/first/wandb").glob("offline-run-*/*.wandb")
    read = [sys.executable, wandb_file.__file__, str(file)]
    kept: dict[str, Any] = json.loads(subprocess.check_output(read))
    names = {key: kept[key] for key in ("project", "name", "tags", "notes", "exit_code")}
    assert names == {
        "project": "balance",
        "name": "first",
        "tags": ["team=red"],
        "notes": "a try",
        "exit_code": 0,
    }
    assert kept["config"]["config.lr"] == 0.002
    assert [point["_step"] for point in kept["history"]] == steps(tmp_path)
    assert "env_runners/episode_return_mean" in kept["history"][-1]
    assert kept["summary"]["status"] == "FINISHED"


def test_a_server_that_does_not_answer_is_a_line(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("WANDB_API_KEY", "0" * 40)
    environment.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{free_port()}")
    environment.setenv("WANDB_INIT_TIMEOUT", "3")
    send = [sys.executable, "-c", SEND, str(tmp_path)]
    done = subprocess.run(send, capture_output=True, text=True, check=True, timeout=120)
    (line,) = done.stdout.splitlines()
    assert line.startswith("W&B: ")
    assert line.endswith("; the training continues without it")
