"""CartPole with the throughput of an external simulator: a step takes time, but hardly any CPU.

The machines of a rehearsal share this machine's cores. Env runners that use all of them would slow
down the boots beside them, and the loss of one would not lower the throughput.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

STEP_S = 0.002


class Paced(gymnasium.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        time.sleep(STEP_S)
        return super().step(action)


def paced_cart_pole(**settings: Any) -> gymnasium.Env[Any, Any]:
    return Paced(CartPoleEnv(**settings))


gymnasium.register("PacedCartPole-v1", paced_cart_pole, max_episode_steps=500)
