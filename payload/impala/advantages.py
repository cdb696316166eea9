"""Advantages in units of a standard deviation that outlives the minibatch."""

from __future__ import annotations

import math

import torch

DECAY = 0.99
"""Of a minibatch's weight with each that comes after it: about the last hundred count."""


class RunningNormalizer:
    """Normalises advantages by mean and deviation of those seen lately, the newest included.

    Few minibatches hold a point. By its own deviation (PPO's habit), the noise of a minibatch
    without one would weigh as much as the point in another.
    """

    def __init__(self) -> None:
        self._weight = self._mean = self._square = 0.0

    def __call__(self, advantages: torch.Tensor) -> torch.Tensor:
        """Returns [steps] float32 for a minibatch's [steps]; non-finite ones are not remembered."""
        mean, square = advantages.mean().item(), advantages.square().mean().item()
        if math.isfinite(square):
            self._weight = DECAY * self._weight + 1.0
            self._mean += (mean - self._mean) / self._weight
            self._square += (square - self._square) / self._weight
        deviation = math.sqrt(max(self._square - self._mean**2, 0.0))
        return (advantages - self._mean) / (deviation + 1e-8)
