"""RLlib's config: accepted for each algorithm on either path, or refused in one line."""

from __future__ import annotations

import subprocess
import sys

import gymnasium
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


@pytest.mark.parametrize("run", ["IMPALA", "APPO", "PPO", "DQN", "SAC"])
def test_the_layers_of_a_network_for_vectors_are_those_that_were_asked_for(run: str) -> None:
    config = rllib_config(run, "CartPole-v1", fcnet_hiddens=[7, 5], fcnet_activation="linear")
    module = config.get_rl_module_spec(env=gymnasium.make("CartPole-v1")).build()
    sizes = {tuple(weight.shape) for weight in module.parameters()}
    assert {(7, 4), (5, 7)} <= sizes
    assert "Tanh" not in str(module)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("run", ["IMPALA", "APPO"])
def test_policy_and_values_share_their_layers_or_not(run: str, shared: bool) -> None:
    config = rllib_config(run, "CartPole-v1", fcnet_hiddens=[7], vf_share_layers=shared)
    module = config.get_rl_module_spec(env=gymnasium.make("CartPole-v1")).build()
    first = [name for name, w in module.named_parameters() if tuple(w.shape) == (7, 4)]
    own = [name for name in first if "old_" not in name]
    assert len(own) == (1 if shared else 2), first


def test_appos_divergence_is_rllibs() -> None:
    config = rllib_config("APPO", "CartPole-v1", use_kl_loss=True, kl_coeff=0.5, kl_target=0.02)
    assert (config.use_kl_loss, config.kl_coeff, config.kl_target) == (True, 0.5, 0.02)


@pytest.mark.parametrize("run", ["DQN", "SAC"])
def test_a_fragment_is_as_long_as_asked_or_has_a_target(run: str) -> None:
    env = "CartPole-v1"
    assert rllib_config(run, env, n_step=3).get_rollout_fragment_length() == 3
    asked = rllib_config(run, env, n_step=3, rollout_fragment_length=4)
    assert asked.get_rollout_fragment_length() == 4


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
