"""What a policy sees of an environment's observations."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import assume, given
from hypothesis import strategies as st

from payload.environments.make_env import make_vector
from payload.environments.policy_observation import PolicyObservations, PolicyObservationVector
from payload.errors import UserError
from tests.payload.random_spaces import boxes, numeric_spaces

PIXELS: dict[str, Any] = {"low": 0, "high": 255, "dtype": np.uint8}


def view(space: spaces.Space[Any], seed: int = 0) -> tuple[spaces.Box, np.ndarray[Any, Any]]:
    """What the policy sees of a space, and of one of its observations."""
    observations = PolicyObservations(space)
    space.seed(seed)
    return observations.policy_space, observations.from_environment(space.sample())


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
        (spaces.Box(shape=(4, 64, 48, 3), **PIXELS), (64, 48, 12)),
        (spaces.Box(-1, 1, ()), (1,)),
        (spaces.Box(-1, 1, (2, 2, 2, 2)), (16,)),
        (spaces.Box(0, 9, (64, 48), np.int64), (64, 48, 1)),
        (spaces.Dict(speed=spaces.Box(-1, 1, (2,)), none=spaces.Box(0, 1, (0,))), (2,)),
        (spaces.Tuple([spaces.Dict(), spaces.Discrete(3, start=-1)]), (3,)),
    ],
    ids=str,
)
def test_an_observation_is_a_vector_or_an_image(
    space: spaces.Space[Any], shape: tuple[int, ...]
) -> None:
    seen, observation = view(space)
    assert seen.shape == observation.shape == shape
    assert observation in seen


def test_bytes_of_an_image_stay_bytes() -> None:
    assert view(spaces.Box(shape=(64, 64, 3), **PIXELS))[0].dtype == np.uint8


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.float16, np.float64, np.bool_])
def test_other_images_are_what_a_convolution_reads(dtype: Any) -> None:
    space = spaces.Box(0, 1, (3, 40, 40), dtype)
    seen, image = view(space)
    assert image.dtype == seen.dtype == np.float32
    assert set(np.unique(image)) <= {0, 1} or dtype in (np.float16, np.float64)


def test_integers_of_pixels_are_divided_as_bytes_are() -> None:
    space = spaces.Box(0, 255, (40, 40), np.int32)
    observations = PolicyObservations(space)
    assert observations.policy_space == spaces.Box(0, 1, (40, 40, 1))
    seen = observations.from_environment(np.full((40, 40), 51, np.int32))
    assert seen[0, 0] == np.float32(0.2)


@given(numeric_spaces(dimensions=4), st.integers(0, 99))
def test_every_observation_of_numbers_is_seen(space: spaces.Space[Any], seed: int) -> None:
    if not spaces.flatdim(space):
        with pytest.raises(UserError, match="observation_space is empty"):
            PolicyObservations(space)
        return
    seen, observation = view(space, seed)
    assert observation in seen
    assert len(seen.shape) in (1, 3)


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Sequence(spaces.Discrete(2)), "observation_space is Sequence.*; allowed: Box, "),
        (
            spaces.Dict(image=spaces.Box(0, 1, (3,)), mission=spaces.Text(9)),
            r'observation_space\["mission"\] is Text.*FilterObservation.*; allowed: Box, ',
        ),
        (
            spaces.Tuple([spaces.Dict(a=spaces.Graph(spaces.Discrete(2), None))]),
            r'observation_space\[0\]\["a"\] is Graph',
        ),
        (spaces.Box(0, 1, (0,)), r"observation_space is empty.*Discrete\(1\)"),
        (spaces.Dict(), "observation_space is empty"),
    ],
    ids=str,
)
def test_what_no_network_reads_is_refused_with_its_entry(
    space: spaces.Space[Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        PolicyObservations(space)


class Huge(spaces.Box):
    """A box that would have its bounds in memory, if it were one."""

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self._shape, self.dtype = shape, np.dtype(dtype)

    def __repr__(self) -> str:
        return f"Box({self._shape})"


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (
            spaces.Discrete(10**12),
            r"observation_space is Discrete\(10+\), 1,000,000,000,000 numbers",
        ),
        (
            spaces.Dict(cell=spaces.Discrete(3_000_000), wind=spaces.Discrete(9)),
            r'observation_space\["cell"\] is Discrete\(3000000\), 3,000,000 of 3,000,009 numbers',
        ),
        (Huge((30_000_000,), np.float64), "30,000,000 numbers .* at most 1,048,576"),
        (Huge((9000, 9000, 3), np.uint8), r"243,000,000 bytes .* at most 67,108,864"),
        (Huge((5000, 5000), np.float32), r"100,000,000 bytes"),
        (Huge((4, 5000, 5000, 3), np.uint8), r"300,000,000 bytes"),
    ],
    ids=str,
)
def test_what_would_fill_the_memory_is_refused_by_size(
    space: spaces.Space[Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        PolicyObservations(space)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1"])
def test_a_vector_gives_what_its_space_says(env_id: str) -> None:
    env = make_vector(env_id, {}, num_envs=3)
    observations, _ = env.reset(seed=0)
    assert observations in env.observation_space
    assert env.step(env.action_space.sample())[0] in env.observation_space
    env.close()


@given(boxes())
def test_a_vector_is_seen_as_each_of_its_environments(space: spaces.Box) -> None:
    assume(np.prod(space.shape) > 0)
    env: Any = gymnasium.vector.VectorEnv()
    env.num_envs, env.single_observation_space = 3, space
    env.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
    env.observation_space = gymnasium.vector.utils.batch_space(space, 3)
    each = [space.low, space.high, space.low]
    together = PolicyObservationVector(env).observations(np.stack(each))
    apart = np.stack([PolicyObservations(space).from_environment(one) for one in each])
    np.testing.assert_array_equal(together, apart)
    assert together.dtype == apart.dtype


def test_a_package_s_own_vector_environment_is_taken() -> None:
    env = make_vector("CartPole-v1", {}, num_envs=2)
    assert not isinstance(env.unwrapped, gymnasium.vector.SyncVectorEnv)
    env.close()
