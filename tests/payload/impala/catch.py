"""Catch (bsuite): a ball falls and a paddle has to catch it. Learnt in seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import VectorEnv

BOARD = 6
"""Rows and columns."""
CELL = 7
"""Pixels."""


class CatchVectorEnv(VectorEnv[Any, Any, Any]):
    """N boards at once, behind the part of ale-py's AtariVectorEnv interface that is used.

    Observations are [N, stack, size, size] uint8. The reward is 1 for a caught ball and -1
    for a missed one; an episode is one ball, BOARD - 1 steps.
    """

    def __init__(
        self, num_envs: int, image_size: int, frame_stack: int, hidden: bool = False
    ) -> None:
        """
        Args:
            hidden: The ball is seen in its first row only: an agent has to remember its column.
        """
        self._hidden = hidden
        self.num_envs, self.image_size = num_envs, image_size
        self._stack_shape = (frame_stack, image_size, image_size)
        self.single_observation_space = spaces.Box(0, 255, self._stack_shape, np.uint8)
        self.single_action_space = spaces.Discrete(3)
        self.observation_space = spaces.Box(0, 255, (num_envs, *self._stack_shape), np.uint8)
        self.action_space = spaces.MultiDiscrete([3] * num_envs)
        self._infos = {"lives": np.zeros(num_envs, np.int64)}

    def reset(
        self, *, seed: int | None = None, options: Any = None
    ) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        self._rng = np.random.default_rng(seed)
        self._row = np.zeros(self.num_envs, np.int64)
        self._ball = self._rng.integers(BOARD, size=self.num_envs)
        self._paddle = self._rng.integers(BOARD, size=self.num_envs)
        stacks = (self.num_envs, *self._stack_shape)
        self._frames: npt.NDArray[np.uint8] = np.zeros(stacks, np.uint8)
        self._draw(np.ones(self.num_envs, np.bool_))
        return self._frames.copy(), self._infos

    def step(self, actions: npt.NDArray[np.int64]) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Moves the paddles left, not at all or right, and starts ended games again."""
        self._paddle = np.clip(self._paddle + actions - 1, 0, BOARD - 1)
        self._row += 1
        over = self._row == BOARD - 1
        rewards = np.where(self._paddle == self._ball, 1.0, -1.0) * over
        self._row[over] = 0
        self._ball[over] = self._rng.integers(BOARD, size=over.sum())
        self._paddle[over] = self._rng.integers(BOARD, size=over.sum())
        self._draw(over)
        truncated = np.zeros(self.num_envs, np.bool_)
        return self._frames.copy(), rewards, over, truncated, self._infos

    def _draw(self, started: npt.NDArray[np.bool_]) -> None:
        """Appends the board's picture to each stack; a new episode's stack is empty below it."""
        self._frames[started] = 0
        self._frames[:, :-1] = self._frames[:, 1:]
        cells = np.zeros((self.num_envs, BOARD, BOARD), np.uint8)
        boards = np.arange(self.num_envs)
        cells[boards, BOARD - 1, self._paddle] = 128
        seen = (self._row == 0) | (not self._hidden)
        cells[boards[seen], self._row[seen], self._ball[seen]] = 255
        picture = cells.repeat(CELL, 1).repeat(CELL, 2)
        self._frames[:, -1] = 0
        self._frames[:, -1, : BOARD * CELL, : BOARD * CELL] = picture
