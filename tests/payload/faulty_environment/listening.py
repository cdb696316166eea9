"""An environment with a simulator that listens at one port."""

from __future__ import annotations

import socket
from typing import Any

import gymnasium
import numpy as np


class Listening(gymnasium.Env[Any, Any]):
    """Episodes of ten steps.

    Args:
        port: The port of the first.
        worker_index: Added to it.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.Discrete(2)

    def __init__(self, port: int, worker_index: int = 0):
        self.simulator = socket.create_server(("127.0.0.1", port + worker_index))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.length = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.length += 1
        return np.zeros(2, np.float32), float(action), self.length == 10, False, {}

    def close(self) -> None:
        self.simulator.close()


gymnasium.register("Listening-v0", f"{__name__}:Listening")
