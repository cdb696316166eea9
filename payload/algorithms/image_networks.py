"""RLlib's networks for images of bytes, of any size, and for a Tuple of actions."""

from dataclasses import fields
from typing import Any

import gymnasium
import torch
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.core.columns import Columns
from ray.rllib.core.models.base import Encoder
from ray.rllib.core.models.catalog import Catalog
from ray.rllib.core.models.configs import CNNEncoderConfig, ModelConfig
from ray.rllib.core.models.torch.encoder import TorchCNNEncoder

from payload.algorithms.tuple_distribution import with_known_logp

FIRST_CHANNELS = 16
MAX_CHANNELS = 64
KERNEL = 4
STRIDE = 2
SMALL = 8
"""Convolutions halve an image until its smaller side is at most this."""


def conv_filters(space: gymnasium.spaces.Box) -> list[list[int]]:
    """Returns RLlib's conv_filters, [channels, kernel, stride] of each layer, for [H, W, C]."""
    side = min(space.shape[:2])
    filters: list[list[int]] = []
    while side > SMALL or not filters:
        channels = min(MAX_CHANNELS, FIRST_CHANNELS * 2 ** len(filters))
        kernel = KERNEL if side >= KERNEL else side
        filters.append([channels, kernel, STRIDE])
        side = -(-side // STRIDE)
    return filters


class ByteImageEncoder(TorchCNNEncoder):
    """Reads images as bytes, which take a quarter of float32's space wherever they travel."""

    def _forward(self, inputs: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        pixels = inputs[Columns.OBS].to(torch.float32) / 255.0
        outputs: dict[str, Any] = super()._forward({**inputs, Columns.OBS: pixels}, **kwargs)
        return outputs


class ByteImageEncoderConfig(CNNEncoderConfig):
    def build(self, framework: str = "torch") -> Encoder:
        return ByteImageEncoder(self)


class ImageCatalog(Catalog):
    """Gives images of bytes the encoder above, and images of any size their convolutions."""

    @classmethod
    def _get_encoder_config(
        cls,
        observation_space: gymnasium.Space[Any],
        model_config_dict: dict[str, Any],
        action_space: gymnasium.Space[Any] | None = None,
    ) -> ModelConfig:
        if len(observation_space.shape or ()) == 3 and not model_config_dict.get("conv_filters"):
            assert isinstance(observation_space, gymnasium.spaces.Box)
            model_config_dict["conv_filters"] = conv_filters(observation_space)
        config = super()._get_encoder_config(observation_space, model_config_dict, action_space)
        if isinstance(config, CNNEncoderConfig) and observation_space.dtype == "uint8":
            return ByteImageEncoderConfig(
                **{field.name: getattr(config, field.name) for field in fields(config)}
            )
        return config

    @classmethod
    def _get_dist_cls_from_action_space(
        cls, action_space: gymnasium.Space[Any], *, framework: str | None = None
    ) -> Any:
        distribution = super()._get_dist_cls_from_action_space(action_space, framework=framework)
        is_tuple = isinstance(action_space, gymnasium.spaces.Tuple)
        return with_known_logp(distribution) if is_tuple and framework else distribution


class PPOImageCatalog(ImageCatalog, PPOCatalog):
    """For PPO, IMPALA and APPO."""
