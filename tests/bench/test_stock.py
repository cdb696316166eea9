"""RLlib's own IMPALA, the baseline of the trainer."""

from __future__ import annotations

import numpy as np
import pytest
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

from bench.stock import VECTOR_GAMES, VECTOR_IMAGE_SIZE, vector_config


@pytest.mark.slow
def test_rllibs_env_runner_samples_from_the_emulators_vector_environment() -> None:
    env_runner = SingleAgentEnvRunner(config=vector_config(1), worker_index=1)
    episodes = env_runner.sample(num_timesteps=4 * VECTOR_GAMES)
    images = np.concatenate([episode.get_observations() for episode in episodes])
    assert len(episodes) == VECTOR_GAMES
    assert images.shape[1:] == (VECTOR_IMAGE_SIZE, VECTOR_IMAGE_SIZE, 1)
    assert images.dtype == np.float32
    assert -1.0 <= images.min() < images.max() < 1.0
    env_runner.stop()
