"""`observation_filter: MeanStdFilter`: a task whose observations nobody learns as they are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from payload.run.checkpoints import Checkpoint, find_checkpoint
from tests.payload.command_line import in_process, run_folder, with_database

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_here")]

EXPERIMENT: dict[str, Any] = {
    "run": "PPO",
    "env": "tests.payload.faulty_environment.shifted:Shifted-v0",
    "config": {
        "observation_filter": "MeanStdFilter",
        "num_env_runners": 2,
        "num_envs_per_env_runner": 4,
        "train_batch_size_per_learner": 400,
        "minibatch_size": 100,
        "num_epochs": 5,
        "lr": 0.003,
        "fcnet_hiddens": [16],
        "min_time_s_per_iteration": 0,
        "evaluation_interval": 1,
        "seed": 1,
    },
    # Guessing makes 5; an evaluation of observations as they are would too.
    "stop": {
        "evaluation/env_runners/episode_return_mean": 9.9,
        "num_env_steps_sampled_lifetime": 20_000,
    },
}


def train(folder: Path, *options: str, **config: Any) -> str:
    changed = {**EXPERIMENT, "config": {**EXPERIMENT["config"], **config}}
    (folder / "shifted.json").write_text(json.dumps(changed))
    done = in_process(folder, "train", *(options or ("shifted.json",)))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def checkpoint(folder: Path) -> Checkpoint:
    return find_checkpoint(run_folder(folder))


def count(folder: Path) -> int:
    newest = run_folder(folder) / "checkpoints"
    file = Checkpoint(max(newest.glob("checkpoint_*"))).observation_filter
    with np.load(file, allow_pickle=False) as filter_:
        assert 999.9 < filter_["mean"][0] < 1000.1
        assert 0.99 < filter_["std"][0] < 1.01
        return int(filter_["number"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = with_database(tmp_path_factory.mktemp("shifted"))
    assert "FINISHED: mean return of the evaluation" in train(folder)
    return folder


def test_an_evaluation_in_training_sees_what_the_training_sees(trained: Path) -> None:
    # Each of 10 steps and the reset, of both env runners and of no evaluation.
    steps = int(checkpoint(trained).progress().env_steps)
    assert steps <= count(trained) <= 1.2 * steps


def test_evaluate_filters_as_the_training_did(trained: Path) -> None:
    done = in_process(trained, "evaluate", str(run_folder(trained)))
    assert done.returncode == 0, done.stdout + done.stderr
    (mean,) = re.findall(r"return ([\d.]+) \+-", done.stdout)
    assert float(mean) > 9.5


def test_a_resumed_run_continues_the_statistics(trained: Path) -> None:
    before = count(trained)
    stop = json.dumps({"training_iteration": checkpoint(trained).progress().iteration + 1})
    train(trained, "--resume", "--stop", stop)
    assert before + 400 <= count(trained) <= before + 600


def test_weights_of_another_run_bring_its_statistics(trained: Path, tmp_path: Path) -> None:
    folder, stop = with_database(tmp_path), json.dumps({"training_iteration": 1})
    train(folder, "shifted.json", "--init-from", str(run_folder(trained)), "--stop", stop)
    assert count(folder) >= count(trained) + 400


def test_env_runners_that_never_wait_share_their_statistics(tmp_path: Path) -> None:
    folder = with_database(tmp_path)
    config = {
        "num_env_runners": 1,
        "evaluation_num_env_runners": 1,
        "train_batch_size_per_learner": None,
        "rollout_fragment_length": 50,
        "minibatch_size": None,
        "min_time_s_per_iteration": 0.5,
    }
    (folder / "shifted.json").write_text(
        json.dumps({**EXPERIMENT, "run": "APPO", "config": {**EXPERIMENT["config"], **config}})
    )
    done = in_process(folder, "train", "shifted.json")
    assert "FINISHED: mean return of the evaluation" in done.stdout, done.stdout + done.stderr
    assert count(folder) >= checkpoint(folder).progress().env_steps
