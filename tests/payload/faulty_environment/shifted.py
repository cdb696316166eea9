"""An environment whose observations are far from 0, and differ by little."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class Shifted(gymnasium.Env[Any, Any]):
    """Asks ten times for the one of two actions that the observation names, 999 or 1001."""

    observation_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.Box(0, 2000, (1,))
    action_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._ask(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self.wanted)
        self.steps += 1
        return self._ask(), reward, self.steps == 10, False, {}

    def _ask(self) -> Any:
        self.wanted = int(self.np_random.integers(2))
        return np.array([999 + 2 * self.wanted], np.float32)


gymnasium.register("Shifted-v0", f"{__name__}:Shifted")
