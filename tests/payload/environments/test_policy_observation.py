"""What a policy sees of an environment's observations."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from payload.environments.make_env import make_vector
from payload.environments.policy_observation import policy_space, to_policy
from payload.errors import UserError

PIXELS: dict[str, Any] = {"low": 0, "high": 255, "dtype": np.uint8}


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (spaces.Box(-1, 1, (3,)), (3,)),
        (spaces.Box(-1, 1, (3, 4)), (12,)),
        (spaces.Discrete(5), (5,)),
        (spaces.MultiDiscrete([2, 3]), (5,)),
        (spaces.Dict(where=spaces.Discrete(4), speed=spaces.Box(-1, 1, (2, 2))), (8,)),
        (spaces.Box(shape=(64, 48), **PIXELS), (64, 48, 1)),
        (spaces.Box(shape=(64, 48, 3), **PIXELS), (64, 48, 3)),
        (spaces.Box(shape=(4, 84, 84), **PIXELS), (84, 84, 4)),
    ],
    ids=str,
)
def test_an_observation_is_a_vector_or_an_image(
    space: spaces.Space[Any], shape: tuple[int, ...]
) -> None:
    seen = policy_space(space)
    space.seed(0)
    observation = to_policy(space, space.sample())
    assert seen.shape == observation.shape == shape
    assert observation in seen


def test_bytes_of_an_image_stay_bytes() -> None:
    assert policy_space(spaces.Box(shape=(64, 64, 3), **PIXELS)).dtype == np.uint8


@pytest.mark.parametrize(
    "space",
    [spaces.Box(0, 1, (2, 2, 2, 2)), spaces.Sequence(spaces.Discrete(2))],
)
def test_what_rllib_has_no_network_for_is_refused(space: spaces.Space[Any]) -> None:
    with pytest.raises(UserError, match="allowed: Box of 1 to 3 dimensions"):
        policy_space(space)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1"])
def test_a_vector_gives_what_its_space_says(env_id: str) -> None:
    env = make_vector(env_id, {}, num_envs=3)
    observations, _ = env.reset(seed=0)
    assert observations in env.observation_space
    assert env.step(env.action_space.sample())[0] in env.observation_space
    env.close()


def test_a_package_s_own_vector_environment_is_taken() -> None:
    env = make_vector("CartPole-v1", {}, num_envs=2)
    assert not isinstance(env.unwrapped, gymnasium.vector.SyncVectorEnv)
    env.close()
