"""How sizes and learning rate follow the number of env runners; one rule for laptop and cluster."""

import math
from dataclasses import dataclass

TRAJECTORIES = ((64, 8, 128), (16, 16, 64), (0, 32, 32))
"""From so many env runners on: games of each, and steps of a game in a rollout fragment.

With many env runners each core plays fewer games, so that a long game ends sooner. But inference
of fewer games takes more CPU time for each step, and the driver needs as much for a fragment of
fewer steps.
"""
KEPT_UP_WITH = 16
"""With up to so many env runners, one learner on a GPU keeps up with minibatches as small as on a
laptop. Larger ones cost environment steps: with minibatches of four times the size Pong was not
solved in 1.16 million, where those of a laptop take 0.9 million."""


@dataclass(frozen=True)
class BatchSizes:
    """Batch sizes and learning rate for a number of env runners."""

    factor: int
    """How many times the train batch and the minibatch of a laptop."""
    num_envs_per_env_runner: int
    rollout_fragment_length: int
    lr_factor: float
    """Adam's steps grow with the square root of the batch (Malladi et al. 2022)."""

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
