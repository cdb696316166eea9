"""How sizes and learning rate follow the number of env runners; one rule for laptop and cluster."""

import math
from dataclasses import dataclass

TRAJECTORIES = ((64, 8, 128), (16, 16, 64), (0, 32, 32))
"""Minimum of env runners, games of each, and steps of a game in a rollout fragment.

With many env runners each core plays fewer games, so that a long game ends sooner. But inference
of fewer games takes more CPU time per step, and a fragment of fewer steps costs the driver as much
as a larger one.
"""
KEPT_UP_WITH = 16
"""Up to this number of env runners, one learner on a GPU keeps up with a laptop's minibatches.
Larger ones cost environment steps: with minibatches of four times the size Pong was not solved in
1.16 million, while a laptop's need 0.9 million."""


@dataclass(frozen=True)
class BatchSizes:
    """Batch sizes and learning rate for a number of env runners."""

    factor: int
    """The train batch and the minibatch, as a multiple of a laptop's."""
    num_envs_per_env_runner: int
    rollout_fragment_length: int
    lr_factor: float
    """The square root of the factor, as Adam's steps grow (Malladi et al. 2022)."""

    @property
    def fragment_steps(self) -> int:
        """Environment steps in one rollout fragment."""
        return self.num_envs_per_env_runner * self.rollout_fragment_length


def batch_sizes_for(num_env_runners: int) -> BatchSizes:
    """Returns the sizes for a number of env runners; 0 counts as a laptop's."""
    factor = max(1, num_env_runners // KEPT_UP_WITH)
    games, length = next(
        (games, length) for least, games, length in TRAJECTORIES if num_env_runners >= least
    )
    return BatchSizes(factor, games, length, lr_factor=math.sqrt(factor))


LAPTOP = batch_sizes_for(0)
