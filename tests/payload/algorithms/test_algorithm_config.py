"""RLlib's config: accepted for each algorithm on either path, or refused in one line."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from payload.algorithms.algorithm_config import algorithm_config
from payload.environments.atari import game_of
from payload.errors import UserError
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment


def rllib_config(run: str, env: str, **settings: object) -> AlgorithmConfig:
    experiment = read_experiment({"run": run, "env": env, "config": settings}).experiment
    atari = game_of(experiment) is not None
    return algorithm_config(experiment, with_defaults(experiment, atari, num_env_runners=2))


@pytest.mark.parametrize("env", ["PongNoFrameskip-v4", "CartPole-v1"])
@pytest.mark.parametrize("run", ["IMPALA", "APPO", "PPO", "DQN"])
def test_rllib_accepts_the_defaults(run: str, env: str) -> None:
    assert rllib_config(run, env).num_env_runners == 2


def test_settings_that_rllib_refuses_together_are_an_error_of_the_user() -> None:
    # RLlib's default for minibatch_size is 128.
    with pytest.raises(UserError, match=r"^config: `minibatch_size` \(128\) must be <= .* \(64\)"):
        rllib_config("PPO", "CartPole-v1", train_batch_size_per_learner=64)


SILENT = """
from payload.algorithms.algorithm_config import check_config
from payload.experiment.derived_defaults import with_defaults
from payload.experiment.read import read_experiment

for run in ("IMPALA", "APPO", "PPO", "DQN", "SAC"):
    experiment = read_experiment({"run": run, "env": "CartPole-v1"}).experiment
    check_config(experiment, with_defaults(experiment, atari=False, num_env_runners=2))
"""


@pytest.mark.slow
def test_a_config_is_checked_without_a_word_of_rllib() -> None:
    command = [sys.executable, "-c", SILENT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
