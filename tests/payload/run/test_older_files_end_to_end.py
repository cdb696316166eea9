"""Files of `rllib train` train, and an environment gets its arguments as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.local_ray import local_ray
from tests.payload.command_line import in_process, run_folder, with_database

pytestmark = pytest.mark.slow

PRIZES = '''
import datetime

import gymnasium
import numpy as np


class Prizes(gymnasium.Env):
    """One prize after another, which the arguments name."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, prizes, day, size):
        assert prizes == {0: -1.0, 1: 1.0}, prizes
        assert type(day) is datetime.date, day
        assert size == (2, [3, 4]), size
        self.prizes = prizes

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), self.prizes[int(action)], False, False, {}


gymnasium.register("Prizes-v0", Prizes)
'''
APPO = """
prizes-appo:
  env: prizes:Prizes-v0
  run: APPO
  source_directory: source
  local_dir: /tmp/nowhere
  stop: {episodes_total: 1e2, time_total_s: 2m}
  config:
    framework: torch
    num_workers: 0
    num_envs_per_worker: 4
    num_gpus: 0
    min_iter_time_s: 0.2
    vtrace: true
    horizon: 10
    use_kl_loss: true
    kl_coeff: 0.5
    model: {fcnet_hiddens: [8], fcnet_activation: linear, vf_share_layers: true}
    enable_connectors: true
    env_config:
      prizes: {0: -1.0, 1: 1.0}
      day: 2026-11-29
      size: !!python/tuple [2, [3, 4]]
"""
SAC = """
pendulum-sac:
  env: Pendulum-v0
  run: SAC
  stop: {sampler_results/episode_reward_mean: 0, timesteps_total: 400.0}
  config:
    framework: tf
    horizon: 50
    soft_horizon: false
    q_model_config: {fcnet_activation: relu, fcnet_hiddens: [16, 16]}
    policy_model_config: {fcnet_activation: relu, fcnet_hiddens: [16, 16]}
    target_entropy: auto
    no_done_at_end: true
    rollout_fragment_length: 1
    prioritized_replay: false
    train_batch_size: 32
    learning_starts: 300
    optimization: {actor_learning_rate: 3e-4, critic_learning_rate: 3e-4}
    num_workers: 0
    num_gpus: 0
    min_iter_time_s: 0.2
"""


def test_an_older_file_trains_is_evaluated_and_resumed_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/prizes.py").write_text(PRIZES)
    (tmp_path / "old.yaml").write_text(APPO)
    local_ray()
    folder = with_database(tmp_path)
    done = in_process(folder, "train", "old.yaml")
    assert "limit of 100 episodes reached" in done.stdout, done.stdout + done.stderr
    assert "config.horizon is now env_config.max_episode_steps: 10" in done.stdout
    played = in_process(folder, "evaluate", str(run_folder(folder)), "--episodes", "2")
    assert played.returncode == 0, played.stdout + played.stderr
    more = ("--resume", str(run_folder(folder)), "--stop", "{episodes_total: 200}")
    resumed = in_process(folder, "train", *more)
    assert "limit of 200 episodes reached" in resumed.stdout, resumed.stdout + resumed.stderr


def test_rllibs_sac_on_pendulum_trains(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(SAC)
    local_ray()
    done = in_process(with_database(tmp_path), "train", "old.yaml")
    assert "limit of 400 environment steps reached" in done.stdout, done.stdout + done.stderr
