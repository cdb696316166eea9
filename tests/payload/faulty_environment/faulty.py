"""An environment that fails in the ways that its `faults` name, once or always."""

from __future__ import annotations

import collections
import itertools
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

FAULTS = ("raises", "hangs", "hangs natively", "NaN", "outside")


class Faulty(gymnasium.Env[Any, Any]):
    """Episodes of ten steps; each of the `faults` occurs once, after `every` more steps.

    Args:
        faults: Names from FAULTS, in the order in which they occur.
        came: A folder in which a file tells all processes that a fault has occurred.
        last_is_always: Whether the last fault occurs in every step after the first time.
    """

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.Discrete(2)

    def __init__(
        self, faults: list[str], came: str, every: int = 300, last_is_always: bool = False
    ):
        self.faults, self.came, self.every = faults, Path(came), every
        self.last_is_always = last_is_always
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.length = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.length += 1
        fault = self._next_fault()
        observation = np.full(2, 0.1 * self.length, np.float32)
        if fault == "raises":
            raise ValueError("the simulator has crashed")
        if fault == "hangs":
            time.sleep(1e6)
        if fault == "hangs natively":
            collections.deque(itertools.repeat(None), maxlen=0)
        if fault == "NaN":
            observation[1] = np.nan
        if fault == "outside":
            observation[1] = 7.0
        return observation, float(action), self.length == 10, False, {}

    def _next_fault(self) -> str | None:
        if self.last_is_always and (self.came / self.faults[-1]).exists():
            return self.faults[-1]
        if self.steps < self.every:
            return None
        for fault in self.faults:
            mark = self.came / fault
            if not mark.exists():
                mark.touch()
                self.steps = 0
                return fault
        return None


gymnasium.register("Faulty-v0", f"{__name__}:Faulty")
