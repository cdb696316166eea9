"""Advantages in units of a standard deviation that outlives the minibatch."""

from __future__ import annotations

import torch

DECAY = 0.99
"""Of a minibatch's weight with each that comes after it: about the last hundred count."""


class RunningNormalizer:
    """Normalizes advantages by mean and deviation of those seen lately, the newest included.

    Few minibatches hold a point. By its own deviation (PPO's habit), the noise of a minibatch
    without one would weigh as much as the point in another.
    """

    def __init__(
        self,
        weight: float = 0.0,
        mean: float = 0.0,
        square: float = 0.0,
        device: torch.device | str = "cpu",
    ) -> None:
        """
        Args:
            weight: Of the minibatches remembered, the newest counting 1.
            mean: Mean of the advantages.
            square: Mean of their squares.
            device: Where the advantages are: the host never waits for a value.
        """
        self._moments = torch.tensor([mean, square], dtype=torch.float64, device=device)
        self._weight = torch.tensor(weight, dtype=torch.float64, device=device)

    def state(self) -> dict[str, float]:
        """Returns the arguments that make an equal one."""
        mean, square = self._moments.tolist()
        return {"weight": self._weight.item(), "mean": mean, "square": square}

    def __call__(self, advantages: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Returns [T, N] float32 for a minibatch's [T, N].

        Args:
            mask: [T, N] bool; False where an advantage does not count. A minibatch whose others
                are not finite is not remembered.
        """
        counted = torch.where(mask, advantages, 0.0)
        moments = torch.stack([counted.sum(), counted.square().sum()]) / mask.sum()
        finite = moments.isfinite().all()
        weight = DECAY * self._weight + 1.0
        remembered = self._moments + (moments - self._moments) / weight
        self._weight = torch.where(finite, weight, self._weight)
        self._moments = torch.where(finite, remembered, self._moments)
        mean, square = self._moments
        deviation = (square - mean.square()).clamp(min=0.0).sqrt()
        return (advantages - mean) / (deviation + 1e-8)
