"""The fast path plays the game that Gymnasium's own wrappers play: one checkpoint, both ways."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

from payload.checkpoints import Checkpoint, find_checkpoint
from payload.evaluate import Policy, evaluate, gymnasium_env

CHECKPOINT = Path(__file__).parent / "data" / "pong"
"""`python -m payload train --seed 0 --stop '{"episode_reward_mean": 18}'`; of its checkpoint,
what evaluation reads."""
EPISODES = 20


def test_a_checkpoint_scores_the_same_through_gymnasiums_wrappers() -> None:
    checkpoint = find_checkpoint(CHECKPOINT)
    with ThreadPoolExecutor() as pool:
        evaluation = pool.submit(evaluate, checkpoint, EPISODES, seed=1)
        returns = returns_through_gymnasium(checkpoint)
        played = evaluation.result()
    assert played.mean > 15, "a policy that wins, or the comparison would say little"
    assert abs(played.mean - returns.mean()) <= 1


def returns_through_gymnasium(checkpoint: Checkpoint) -> npt.NDArray[np.float64]:
    """Plays an episode in each of EPISODES environments; returns their returns."""
    policy = Policy(checkpoint, explore=False)
    envs = [gymnasium_env(checkpoint.experiment()) for _ in range(EPISODES)]
    observations = {i: env.reset(seed=1 + i)[0] for i, env in enumerate(envs)}
    returns = np.zeros(EPISODES)
    while observations:
        actions = policy(np.stack(list(observations.values())))
        for i, action in zip(list(observations), actions, strict=True):
            observations[i], reward, terminated, truncated, _ = envs[i].step(action)
            returns[i] += reward
            if terminated or truncated:
                del observations[i]
                envs[i].close()
    return returns
