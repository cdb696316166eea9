"""Advantages in units of a standard deviation that outlives the minibatch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

DECAY = 0.99
"""Of a minibatch's weight with each that comes after it: about the last hundred count."""


@dataclass
class RunningNormalizer:
    """Normalises advantages by mean and deviation of those seen lately, the newest included.

    Few minibatches hold a point. By its own deviation (PPO's habit), the noise of a minibatch
    without one would weigh as much as the point in another.
    """

    weight: float = 0.0
    """Of the minibatches remembered, the newest counting 1."""
    mean: float = 0.0
    square: float = 0.0
    """Mean of the squares."""

    def __call__(self, advantages: torch.Tensor) -> torch.Tensor:
        """Returns [steps] float32 for a minibatch's [steps]; non-finite ones are not remembered."""
        mean, square = advantages.mean().item(), advantages.square().mean().item()
        if math.isfinite(square):
            self.weight = DECAY * self.weight + 1.0
            self.mean += (mean - self.mean) / self.weight
            self.square += (square - self.square) / self.weight
        deviation = math.sqrt(max(self.square - self.mean**2, 0.0))
        return (advantages - self.mean) / (deviation + 1e-8)
