"""What a resumed algorithm needs besides its checkpoint."""

from types import SimpleNamespace

import pytest
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig

from payload.run.build_algorithm import delay_learning


@pytest.mark.parametrize(("config", "steps"), [(DQNConfig(), 1000), (SACConfig(), 1500)])
def test_a_resumed_algorithm_fills_its_replay_buffer_before_it_learns(
    config: AlgorithmConfig, steps: int
) -> None:
    config.freeze()
    algorithm = SimpleNamespace(config=config)
    delay_learning(algorithm, env_steps=50_000)
    assert algorithm.config.num_steps_sampled_before_learning_starts == 50_000 + steps
    assert config.num_steps_sampled_before_learning_starts == steps


def test_an_algorithm_without_a_replay_buffer_learns_at_once() -> None:
    config = PPOConfig()
    algorithm = SimpleNamespace(config=config)
    delay_learning(algorithm, env_steps=50_000)
    assert algorithm.config is config
