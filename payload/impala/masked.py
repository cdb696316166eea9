"""Statistics over the steps of a minibatch that count."""

import torch


def masked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the mean of the values that the mask selects."""
    # Not values[mask]: the host would wait for the number of its elements.
    return torch.where(mask, values, 0.0).sum() / mask.sum()


def explained_variance(
    targets: torch.Tensor, errors: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """Returns the share of the targets' variance that values with these errors explain."""
    unexplained = _variance(errors, mask)
    return 1.0 - unexplained / _variance(targets, mask).clamp(min=1e-8)


def _variance(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return masked_mean((values - masked_mean(values, mask)).square(), mask)
