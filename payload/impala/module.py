"""The policy and value network: a shared convolutional net on normalised pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis.value_function_api import ValueFunctionAPI
from ray.rllib.core.rl_module.torch import TorchRLModule
from torch import nn

from payload.impala.connector import FIRST, FRAMES
from payload.impala.frame_stack import stack_frames
from payload.impala.networks import convolutions, orthogonal

STACKS = "stacks"
"""What `AtariModule.stack` returned, for a learner that passes over a minibatch several times."""
PIXEL_CLIP = 5.0
PIXEL_STD_FLOOR = 8.0
"""Added to a pixel's standard deviation (grey levels), so that a dead pixel stays quiet."""


class AtariModule(TorchRLModule, ValueFunctionAPI):
    """Convolutions and one dense layer, shared by policy and value.

    Pixels are normalised one by one with the mean and standard-deviation image of
    random play; without that, Pong at 42x42 shows no learning by half a million steps.
    Both images are buffers: they travel and are saved with the weights. So is the temperature with
    which env runners sample.
    """

    temperature: torch.Tensor

    def setup(self) -> None:
        shape = self.observation_space.shape
        # Checkpoints of before there were several have no name.
        conv = convolutions(self.model_config.get("network", "small"), shape)
        conv_size = conv(torch.zeros(1, *shape)).shape[1]
        hidden = self.model_config["fcnet_hidden"]
        self.body = nn.Sequential(conv, orthogonal(nn.Linear(conv_size, hidden)), nn.ReLU())
        self.policy = orthogonal(nn.Linear(hidden, int(self.action_space.n)), gain=0.01)
        self.value = orthogonal(nn.Linear(hidden, 1), gain=1.0)
        self.register_buffer("temperature", torch.ones(()))
        self.register_buffer("pixel_mean", torch.zeros(shape[1:]))
        self.register_buffer("pixel_scale", torch.full(shape[1:], 1 / 255))

    def set_pixel_statistics(self, mean: npt.NDArray[Any], std: npt.NDArray[Any]) -> None:
        """Sets the images, each [H, W] in grey levels, that normalise an observation."""
        self.pixel_mean.copy_(torch.as_tensor(mean))
        self.pixel_scale.copy_(1.0 / (torch.as_tensor(std) + PIXEL_STD_FLOOR))

    def set_state(self, state: dict[str, Any]) -> None:
        """Sets RLlib's state; one of before there was a temperature has none."""
        super().set_state({"temperature": np.ones((), np.float32), **state})

    def stack(self, batch: dict[str, Any]) -> torch.Tensor:
        """Returns the normalized stacks of a train batch, float32 [N * (T + 1), K, H, W]."""
        frames = batch[FRAMES]
        blank = self._normalize(torch.zeros_like(frames[0, 0]))
        return stack_frames(self._normalize(frames), batch[FIRST], blank).flatten(0, 1)

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, torch.Tensor]:
        embeddings = self._embed(batch)
        return {
            Columns.EMBEDDINGS: embeddings,
            Columns.ACTION_DIST_INPUTS: self.policy(embeddings),
        }

    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, torch.Tensor]:
        outputs = self._forward(batch)
        return {
            **outputs,
            Columns.VF_PREDS: self.compute_values(batch, outputs[Columns.EMBEDDINGS]),
        }

    def compute_values(
        self, batch: dict[str, Any], embeddings: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Returns the value of each observation, [B] float32."""
        if embeddings is None:
            embeddings = self._embed(batch)
        return self.value(embeddings).squeeze(-1)

    def get_state(self, *args: Any, **kwargs: Any) -> dict[str, npt.NDArray[Any]]:
        """Returns RLlib's state, out of one copy of all weights: a GPU is waited for once."""
        tensors = {name: tensor.detach() for name, tensor in self.state_dict().items()}
        flat = torch.cat([tensor.flatten() for tensor in tensors.values()]).cpu()
        parts = flat.split([tensor.numel() for tensor in tensors.values()])
        return {
            name: part.view(tensor.shape).numpy()
            for (name, tensor), part in zip(tensors.items(), parts, strict=True)
        }

    def _embed(self, batch: dict[str, Any]) -> torch.Tensor:
        """Maps an env runner's stacks or a train batch's frames to float32 [B, hidden].

        The stacks are uint8 [B, K, H, W]. Of a train batch, B is N * (T + 1), row after row.
        """
        if FRAMES not in batch:
            return self.body(self._normalize(batch[Columns.OBS]))
        # K is the fastest axis, as in channels_last: on CPUs the backward pass of that takes a
        # fifth less time. Not in bfloat16: a third less time, but on three seeds tried Pong took
        # 1.1 to over 2 times the steps.
        return self.body(batch[STACKS] if STACKS in batch else self.stack(batch))

    def _normalize(self, pixels: torch.Tensor) -> torch.Tensor:
        """Maps uint8 [..., H, W] to float32, pixel by pixel."""
        normalized = pixels.float().sub_(self.pixel_mean).mul_(self.pixel_scale)
        return normalized.clamp_(-PIXEL_CLIP, PIXEL_CLIP)
