"""A walk to a goal, which the agent sees as the pixels of an X window."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from Xlib import X
from Xlib.display import Display

CELL = 6
"""Pixels of a cell's side."""
FLOOR, WALL, GOAL, AGENT = 0x000000, 0x555555, 0xAAAAAA, 0xFFFFFF
WAYS = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Up, down, left, right; rows and columns."""
WINDOWS_IN_A_ROW = 16


class Room(gymnasium.Env[npt.NDArray[np.uint8], np.int64]):
    """A room with walls: a step costs 0.1, the goal gives 1.

    Observations are the window's pixels, gray, uint8 [H, W]. The room is the file
    $VOLLEY_INPUT_MAPS/$ROOM_MAP.txt: `#` is wall, `G` the goal.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    windows = 0
    """Of this process; side by side, since X keeps no pixels of what another window covers."""

    def __init__(self, render_mode: str | None = None) -> None:
        """
        Raises:
            Xlib.error.DisplayError: No X server answers.
        """
        self.render_mode = render_mode
        path = Path(os.environ["VOLLEY_INPUT_MAPS"], f"{os.environ['ROOM_MAP']}.txt")
        self._map = np.array([list(line) for line in path.read_text().splitlines()])
        self._free = np.argwhere(self._map == ".")
        height, width = np.multiply(self._map.shape, CELL).tolist()
        self.action_space = gymnasium.spaces.Discrete(len(WAYS))
        self.observation_space = gymnasium.spaces.Box(0, 255, (height, width), np.uint8)
        self._display = Display()
        self._open_window(height, width)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        super().reset(seed=seed)
        self._place = tuple(self.np_random.choice(self._free))
        for place, kind in np.ndenumerate(self._map):
            self._draw(place, {"#": WALL, "G": GOAL}.get(kind, FLOOR))
        self._draw(self._place, AGENT)
        return self._pixels()[..., 0], {}

    def step(
        self, action: np.int64
    ) -> tuple[npt.NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        row, column = np.clip(np.add(self._place, WAYS[action]), 0, np.subtract(self._map.shape, 1))
        if self._map[row, column] != "#":
            self._draw(self._place, FLOOR)
            self._place = (row, column)
            self._draw(self._place, AGENT)
        over = bool(self._map[self._place] == "G")
        return self._pixels()[..., 0], float(over) - 0.1, over, False, {}

    def render(self) -> npt.NDArray[np.uint8]:
        """Returns the window's pixels, uint8 [H, W, 3]."""
        return self._pixels()

    def close(self) -> None:
        self._display.close()

    def _open_window(self, height: int, width: int) -> None:
        row, column = divmod(Room.windows, WINDOWS_IN_A_ROW)
        Room.windows += 1
        screen = self._display.screen()
        # No window manager places or frames it.
        self._window = screen.root.create_window(
            *(column * width, row * height, width, height),
            *(0, screen.root_depth),
            override_redirect=True,
            event_mask=X.ExposureMask,
        )
        self._pen = self._window.create_gc()
        self._window.map()
        # Pixels drawn before it is on the screen are lost.
        while self._display.next_event().type != X.Expose:
            pass
        self._size = (height, width)

    def _draw(self, place: tuple[int, ...], color: int) -> None:
        row, column = place
        self._pen.change(foreground=color)
        self._window.fill_rectangle(self._pen, column * CELL, row * CELL, CELL, CELL)

    def _pixels(self) -> npt.NDArray[np.uint8]:
        """Reads the window back from the X server, [H, W, 3]."""
        height, width = self._size
        image = self._window.get_image(0, 0, width, height, X.ZPixmap, 0xFFFFFFFF)
        # A pixel has four bytes: blue, green, red and none.
        return np.frombuffer(image.data, np.uint8).reshape(height, width, 4)[..., 2::-1]


gymnasium.register("Room-v0", Room, max_episode_steps=50)
