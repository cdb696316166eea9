"""Mends RLlib's distribution for a Tuple of actions."""

from typing import Any

import torch
from ray.rllib.core.distribution.torch.torch_distribution import TorchMultiDistribution


def with_known_logp(distribution: type[Any]) -> type[Any]:
    """Returns RLlib's distribution for a Tuple of MultiDiscrete and Box, fit for `explore: false`.

    RLlib's env runner asks for the log-probability of the likeliest action too. RLlib 2.60 returns
    a zero for each of its numbers, and fails to add those of parts of different lengths.
    """

    class KnownLogp(distribution):  # type: ignore[misc]
        def to_deterministic(self) -> TorchMultiDistribution:
            return _Likeliest(super().to_deterministic()._original_struct)

    return KnownLogp


class _Likeliest(TorchMultiDistribution):  # type: ignore[misc]
    def logp(self, value: Any) -> torch.Tensor:
        numbers = self._flat_child_distributions[-1].loc
        return torch.zeros_like(numbers[..., 0])
