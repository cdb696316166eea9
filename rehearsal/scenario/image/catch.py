"""A ball falls and a paddle catches it: an environment that exists only in a container image."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

ROWS = int(Path("/usr/share/catch/rows").read_text())
COLUMNS = int(os.environ["CATCH_COLUMNS"])


class Catch(gymnasium.Env[NDArray[np.float32], np.int64]):
    """The return of an episode is 1 for a ball that is caught and -1 for one that is not."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self._ball = np.array([0, self.np_random.integers(COLUMNS)])
        self._paddle = COLUMNS // 2
        return self._seen(), {}

    def step(
        self, action: np.int64
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self._ball[0] += 1
        self._paddle = int(np.clip(self._paddle + action - 1, 0, COLUMNS - 1))
        over = bool(self._ball[0] == ROWS)
        reward = (1.0 if self._paddle == self._ball[1] else -1.0) if over else 0.0
        return self._seen(), reward, over, False, {}

    def _seen(self) -> NDArray[np.float32]:
        row, column = self._ball
        return np.array([row / ROWS, column / COLUMNS, self._paddle / COLUMNS], np.float32)


def catch(**_: Any) -> gymnasium.Env[Any, Any]:
    return Catch()


gymnasium.register("Catch-v0", catch)
