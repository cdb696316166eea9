"""The network of Atari games."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from ray.rllib.core.columns import Columns

from payload.environments.atari import AtariSettings
from payload.impala.module import AtariModule, pixel_statistics


@pytest.mark.parametrize("network", ["small", "fine", "nature", "impala"])
@pytest.mark.parametrize(("height", "width"), [(42, 42), (42, 40), (84, 84)])
def test_no_column_of_an_image_is_lost(network: str, height: int, width: int) -> None:
    module = AtariModule(
        observation_space=Box(0, 255, (4, height, width), np.uint8),
        action_space=Discrete(6),
        model_config={"network": network, "fcnet_hidden": 16, "q_values": False},
    )
    one_for_each_column = torch.zeros(width + 1, 4, height, width, dtype=torch.uint8)
    for column in range(width):
        one_for_each_column[column + 1, :, :, column] = 255
    values = module.compute_values({Columns.OBS: one_for_each_column})
    unchanged = (values[1:] == values[0]).nonzero().flatten().tolist()
    assert unchanged == []


@pytest.mark.parametrize("network", ["small", "fine", "nature", "impala"])
def test_each_layer_before_action_values_is_normalised(network: str) -> None:
    module = AtariModule(
        observation_space=Box(0, 255, (4, 42, 42), np.uint8),
        action_space=Discrete(6),
        model_config={"network": network, "fcnet_hidden": 16, "q_values": True},
    )
    kinds = [type(layer).__name__ for layer in module.modules()]
    assert kinds.count("GroupNorm") == kinds.count("Conv2d") >= 2
    assert kinds.count("LayerNorm") == 1
    assert kinds.count("Linear") == 2


@pytest.mark.slow
def test_learners_of_one_game_normalise_pixels_alike() -> None:
    one, other = (pixel_statistics(AtariSettings("pong"), num_steps=100) for _ in range(2))
    np.testing.assert_array_equal(one, other)
