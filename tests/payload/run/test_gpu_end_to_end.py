"""A learner on a GPU, if the machine has one; its checkpoint must also play without a GPU."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from tests.payload.command_line import TINY, mlflow_run, payload, run_folder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch cannot use a GPU whose driver is too old.
    HAS_GPU = torch.cuda.is_available()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_GPU, reason="torch finds no GPU"),
]


@pytest.fixture(scope="module", params=["IMPALA", "APPO", "PQN"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a remote learner on a GPU was trained."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    config = TINY.replace("{", '{"num_gpus": 1, ')
    stop = '{"training_iteration": 8}'
    done = payload(folder, "train", "--run", request.param, "--config", config, "--stop", stop)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Training started after" in done.stdout
    return folder


def test_a_gpu_is_measured_while_its_learner_trains(trained: Path) -> None:
    memory = [
        value
        for name, value in mlflow_run(trained).data.metrics.items()
        if name.endswith("/gpu_0_memory_usage_megabytes")
    ]
    assert memory
    assert min(memory) > 0


def test_what_a_gpu_trained_plays_without_one(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = payload(trained, "evaluate", str(run_folder(trained)), "--episodes", "1")
    assert done.returncode == 0, done.stdout + done.stderr
