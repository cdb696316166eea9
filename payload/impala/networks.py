"""The convolutions of the policy network, by name."""

from __future__ import annotations

import torch
from torch import nn

LAYERS = {
    # A first stride of 3 takes a third more time, and Pong as many steps to learn.
    "small": ((16, 6, 4), (32, 4, 2)),
    "fine": ((16, 4, 2), (32, 4, 2)),
    "nature": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
}
"""Channels, kernel size and stride: A3C's (Mnih et al. 2016) with a smaller first kernel, the same
with a smaller first stride, for games where a pixel counts, and that of Mnih et al. (2015)."""
RESIDUAL_CHANNELS = (16, 32, 32)
"""Of the deep network of Espeholt et al. (2018), figure 3."""


def convolutions(name: str, shape: tuple[int, int, int]) -> nn.Sequential:
    """Returns layers that map float32 [B, K, H, W] to float32 [B, features].

    Args:
        name: small, fine, nature or impala.
        shape: K, H, W.
    """
    channels, *image = shape
    layers: list[nn.Module] = []
    if name == "impala":
        for out in RESIDUAL_CHANNELS:
            pool = nn.MaxPool2d(3, stride=2, padding=1)
            convolution = orthogonal(nn.Conv2d(channels, out, 3, padding=1))
            layers += [convolution, pool, ResidualBlock(out), ResidualBlock(out)]
            channels = out
        return nn.Sequential(*layers, nn.ReLU(), nn.Flatten())
    for out, kernel, stride in LAYERS[name]:
        # Otherwise the strides would skip the last rows or columns.
        padding = [(-(size - kernel) % stride + 1) // 2 for size in image]
        convolution = orthogonal(nn.Conv2d(channels, out, kernel, stride, tuple(padding)))
        layers += [convolution, nn.ReLU()]
        image = [
            (size + 2 * pad - kernel) // stride + 1
            for size, pad in zip(image, padding, strict=True)
        ]
        channels = out
    return nn.Sequential(*layers, nn.Flatten())


class ResidualBlock(nn.Module):
    """Adds two convolutions of its input to it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ReLU(),
            orthogonal(nn.Conv2d(channels, channels, 3, padding=1)),
            nn.ReLU(),
            orthogonal(nn.Conv2d(channels, channels, 3, padding=1)),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self.layers(images)
        return images + added


def orthogonal(layer: nn.Module, gain: float = 2**0.5) -> nn.Module:
    """Returns the layer with orthogonal weights and no bias (Engstrom et al. 2020)."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
