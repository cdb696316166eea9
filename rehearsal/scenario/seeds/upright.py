"""CartPole that reports in each `info` how far its pole leans."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv


class Upright(gymnasium.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        lean = abs(float(observation[2]))
        return observation, reward, terminated, truncated, {**info, "lean": lean}


gymnasium.register("Upright-v0", lambda **settings: Upright(CartPoleEnv(**settings)))
