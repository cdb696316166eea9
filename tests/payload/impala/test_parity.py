"""The fast path plays the game that Gymnasium's own wrappers play: one checkpoint, both ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from payload.run.checkpoint_policy import Policy
from payload.run.checkpoints import find_checkpoint
from payload.run.evaluate import evaluate

pytestmark = pytest.mark.slow

CHECKPOINT = Path(__file__).parents[1] / "data" / "pong"
"""The files that evaluation reads from a checkpoint of
`python -m payload train --seed 0 --stop '{"episode_reward_mean": 18}'`."""
EPISODES = 4
"""Through the wrappers, an episode takes three seconds."""


def wrapped() -> gymnasium.Env[Any, Any]:
    env: gymnasium.Env[Any, Any] = gymnasium.make("PongNoFrameskip-v4", frameskip=1)
    return FrameStackObservation(AtariPreprocessing(env, screen_size=42), 4, padding_type="zero")


def test_a_checkpoint_scores_the_same_through_gymnasiums_wrappers() -> None:
    checkpoint = find_checkpoint(CHECKPOINT)
    policy = Policy(checkpoint, explore=False)
    env: Any = SyncVectorEnv([wrapped] * EPISODES, autoreset_mode=AutoresetMode.NEXT_STEP)
    observations, _ = env.reset(seed=1)
    returns, running = np.zeros(EPISODES), np.ones(EPISODES, np.bool_)
    while running.any():
        observations, rewards, terminated, truncated, _ = env.step(policy(observations))
        returns += rewards * running
        running &= ~(terminated | truncated)
    env.close()
    played = evaluate(checkpoint, EPISODES, seed=1)
    assert played.mean > 15, "a policy that wins, or the comparison would say little"
    assert abs(played.mean - returns.mean()) <= 1
