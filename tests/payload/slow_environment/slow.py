"""CartPole in slow motion, for tests that wait for something other than samples."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

STEP_S = 0.01


class Slow(CartPoleEnv):
    """CartPole that leaves the machine's cores to other processes."""

    def step(self, action: Any) -> Any:
        time.sleep(STEP_S)
        return super().step(action)


gymnasium.register("Slow-v0", f"{__name__}:Slow", max_episode_steps=50)
