"""How sizes and learning rate follow the number of env runners; one rule for laptop and cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass

FRAGMENT_STEPS = 1024
"""Environment steps of a rollout fragment: the driver's cost of one does not depend on them."""
MOST_GAMES, FEWEST_GAMES = 32, 8
"""Of one env runner: inference of fewer games takes more of a core for each step."""
LAPTOP = 2
"""Env runners that have MOST_GAMES each."""
KEPT_UP_WITH = 16
"""Env runners whose steps one learner on a GPU takes in minibatches as small as a laptop's. A
larger minibatch costs environment steps: Pong took twice as many with one of four times the size."""


@dataclass(frozen=True)
class Scale:
    """Of a number of env runners."""

    factor: int
    """How many times the train batch and the minibatch of a laptop."""
    num_envs_per_env_runner: int
    rollout_fragment_length: int
    lr_factor: float
    """Adam's steps grow with the square root of the batch (Malladi et al. 2022)."""


def scale_of(num_env_runners: int) -> Scale:
    """Returns the sizes for a number of env runners; 0 counts as a laptop's."""
    factor = max(1, num_env_runners // KEPT_UP_WITH)
    # With all of them, games grow with the square root of the cores: no game lasts too long.
    halvings = round(math.log2(max(1.0, num_env_runners / LAPTOP)) / 2)
    games = max(FEWEST_GAMES, MOST_GAMES // 2**halvings)
    return Scale(
        factor=factor,
        num_envs_per_env_runner=games,
        rollout_fragment_length=FRAGMENT_STEPS // games,
        lr_factor=math.sqrt(factor),
    )
