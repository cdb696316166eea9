"""An environment whose `info` has numbers at the end of an episode."""

from __future__ import annotations

from typing import Any

import gymnasium


class Telling(gymnasium.Env[Any, Any]):
    """Episodes of three steps, each of which is a success."""

    observation_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.Discrete(4)
    action_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return 0, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        over = self.steps == 3
        return self.steps, 1.0, over, False, {"success": over, "collisions": 7}


gymnasium.register("Telling-v0", f"{__name__}:Telling")
