"""Shows episodes of a checkpoint's policy in a window."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import numpy.typing as npt

from payload.run.checkpoints import Checkpoint
from payload.run.video import pictured

MIN_WIDTH = 480
"""Smaller pictures are enlarged."""


def watch(checkpoint: Checkpoint, episodes: int, seed: int = 0) -> int:
    """Shows episodes until the window is closed; returns how many it has shown to their ends.

    Raises:
        ImportError: pygame is not installed.
        pygame.error: The machine has no display.
    """
    import pygame

    pygame.display.init()
    try:
        for episode in range(episodes):
            plays, rate = pictured(checkpoint, seed + episode)
            with closing(plays):
                for step in plays:
                    if not _show(step.picture, rate):
                        return episode
        return episodes
    finally:
        pygame.display.quit()


def _show(picture: npt.NDArray[np.uint8], rate: int) -> bool:
    """Shows a picture, [H, W, 3]; returns False once the window is closed."""
    import pygame

    height, width = picture.shape[:2]
    zoom = max(1, MIN_WIDTH // width)
    size = (width * zoom, height * zoom)
    window = pygame.display.get_surface()
    if window is None or window.get_size() != size:
        window = pygame.display.set_mode(size)
        pygame.display.set_caption("volley evaluate --watch")
    surface = pygame.surfarray.make_surface(picture.swapaxes(0, 1))
    window.blit(pygame.transform.scale(surface, size), (0, 0))
    pygame.display.flip()
    pygame.time.wait(round(1000 / rate))
    return not any(event.type == pygame.QUIT for event in pygame.event.get())
