"""How a policy's actions become those of an environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from torch.utils._pytree import tree_leaves, tree_map

from payload.environments.make_env import make_env, make_vector
from payload.environments.policy_action import PolicyActions
from payload.errors import UserError
from tests.payload.random_spaces import boxes, numeric_spaces

FAR = 1e30


@given(numeric_spaces(), st.integers(0, 99), st.sampled_from([0.0, 1.0, FAR]))
def test_every_action_is_in_its_space(space: spaces.Space[Any], seed: int, spread: float) -> None:
    if not spaces.flatdim(space):
        with pytest.raises(UserError, match="action_space is empty"):
            PolicyActions(space)
        return
    actions = PolicyActions(space)
    action = actions.to_environment(policys_action(actions.policy_space, seed, spread))
    assert action in space


def policys_action(seen: spaces.Space[Any], seed: int, spread: float) -> Any:
    """Returns what RLlib's distribution for a policy's space may return."""
    seen.seed(seed)
    spread_out = np.random.default_rng(seed).normal(scale=spread, size=99).astype(np.float32)

    def sample(part: spaces.Space[Any]) -> Any:
        if isinstance(part, spaces.Tuple):
            return tuple(sample(inner) for inner in part)
        return part.sample() if not isinstance(part, spaces.Box) else spread_out[: part.shape[0]]

    return sample(seen)


@given(boxes(), st.integers(0, 99))
def test_a_vector_of_actions_is_mapped_as_each_of_them(space: spaces.Box, seed: int) -> None:
    assume(np.prod(space.shape) > 0)
    actions = PolicyActions(space)
    each = 2 * np.random.default_rng(seed).standard_normal((3, int(np.prod(space.shape))))
    together = actions.to_environment(each.astype(np.float32))
    apart = np.stack([actions.to_environment(action) for action in each.astype(np.float32)])
    np.testing.assert_array_equal(together, apart)
    assert together.dtype == space.dtype


@given(numeric_spaces(), st.integers(0, 99), st.sampled_from([0.0, 1.0, FAR]))
def test_a_graph_of_tensors_maps_actions_in_the_same_way(
    space: spaces.Space[Any], seed: int, spread: float
) -> None:
    assume(spaces.flatdim(space))
    actions = PolicyActions(space)
    action = policys_action(actions.policy_space, seed, spread)
    batch = tree_map(lambda part: torch.from_numpy(np.stack([part] * 2)), action)
    numbers = [
        np.ravel(part) for part in tree_leaves(actions.to_environment(action)) if np.size(part)
    ]
    parts = list(actions.in_graph(batch).values())
    for wanted, part in zip(numbers, parts, strict=True):
        assert str(part.dtype).removeprefix("torch.") == str(wanted.dtype)
        # float16 is rounded by way of float32 there.
        assert_allclose(part.numpy()[1].ravel(), wanted, rtol=2e-3 * (wanted.dtype == "float16"))


@pytest.mark.parametrize(
    ("space", "seen"),
    [
        (spaces.Discrete(3, start=-1), spaces.Discrete(3)),
        (spaces.MultiDiscrete([3, 2], start=[1, 10]), spaces.MultiDiscrete([3, 2])),
        (spaces.MultiDiscrete([4], start=[7]), spaces.Discrete(4)),
        (spaces.MultiBinary([2, 2]), spaces.MultiDiscrete([2] * 4)),
        (spaces.Dict(a=spaces.Discrete(2, start=5)), spaces.Discrete(2)),
        (
            spaces.Tuple([spaces.Discrete(2), spaces.Dict(b=spaces.MultiBinary(1))]),
            spaces.MultiDiscrete([2, 2]),
        ),
    ],
    ids=str,
)
def test_each_choice_of_the_policy_is_another_action(
    space: spaces.Space[Any], seen: spaces.Space[Any]
) -> None:
    actions = PolicyActions(space)
    assert actions.policy_space == seen
    counts = np.atleast_1d(seen.n if isinstance(seen, spaces.Discrete) else seen.nvec)  # type: ignore[attr-defined]
    choices = [np.array(choice) for choice in np.ndindex(*counts)]
    if isinstance(seen, spaces.Discrete):
        choices = [choice[0] for choice in choices]
    taken = [actions.to_environment(choice) for choice in choices]
    assert all(action in space for action in taken)
    assert len({str(spaces.flatten(space, action)) for action in taken}) == len(choices)


def numbers(space: spaces.Space[Any], *values: float) -> list[float]:
    """The action of one number for each value of the policy."""
    actions = PolicyActions(space)
    return [float(actions.to_environment(np.array([value], np.float32)).item()) for value in values]


def box(low: float, high: float, dtype: Any = np.float32, **shape: Any) -> spaces.Box:
    return spaces.Box(low, high, dtype=dtype, **{"shape": (1,), **shape})


def test_a_box_with_two_bounds_is_as_wide_as_the_policys() -> None:
    assert numbers(box(-4, 2), -9, -1, 0, 1, 9) == [-4, -4, -1, 2, 2]


def test_a_box_with_one_bound_begins_there() -> None:
    assert numbers(box(0, np.inf), -9, 0, 2.5) == [0, 0, 2.5]
    assert numbers(box(100, np.inf), -9, 0, 2.5) == [100, 100, 102.5]
    assert numbers(box(-np.inf, -3), -9, 0, 2.5) == [-12, -3, -3]


def test_a_box_without_bounds_is_the_policys_own() -> None:
    assert numbers(box(-np.inf, np.inf), -9, 0, 2.5) == [-9, 0, 2.5]
    limit = float(np.finfo(np.float32).max)
    assert numbers(box(-limit, limit), -9, 0, 2.5) == [-9, 0, 2.5]


def test_each_integer_of_a_box_takes_an_equal_share() -> None:
    assert numbers(box(3, 6, np.int64), -1, -0.6, -0.4, 0.1, 0.4, 0.6, 1) == [3, 3, 4, 5, 5, 6, 6]


def test_integers_without_a_bound_are_rounded() -> None:
    limit = np.iinfo(np.int64)
    assert numbers(box(limit.min, limit.max, np.int64), -9.4, 0, 2.6) == [-9, 0, 3]


def test_numbers_too_large_for_their_type_are_its_largest() -> None:
    assert numbers(box(0, np.inf, np.float16), FAR) == [np.finfo(np.float16).max]
    assert numbers(box(5, np.inf, np.float32), FAR) == [np.float32(FAR)]
    assert numbers(box(-1e300, np.inf, np.float64), -FAR, FAR) == [
        -np.float32(FAR),
        np.float32(FAR),
    ]
    assert numbers(box(0, np.inf, np.int32), FAR) == [np.iinfo(np.int32).max]


def test_a_number_without_dimension_stays_one() -> None:
    action = PolicyActions(box(-1, 1, shape=())).to_environment(np.zeros(1, np.float32))
    assert action.shape == ()


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Dict(say=spaces.Text(3)), r'action_space\["say"\] is Text.*; allowed: Box, '),
        (
            spaces.Tuple([spaces.Discrete(2), spaces.Sequence(spaces.Discrete(2))]),
            r"action_space\[1\] is Sequence.*; allowed: Box, ",
        ),
        (spaces.Box(0, 1, (0,)), "action_space is empty"),
        (spaces.Dict(), "action_space is empty"),
        (
            spaces.Dict(buy=spaces.Discrete(10**12), sell=spaces.Discrete(2)),
            r'action_space\["buy"\] is Discrete\(1000000000000\), .*1,000,000,000,000 .* at most',
        ),
    ],
    ids=str,
)
def test_what_no_policy_can_act_in_is_refused_with_its_entry(
    space: spaces.Space[Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        PolicyActions(space)


def test_a_vector_environment_of_a_package_gets_actions_of_its_space() -> None:
    class Pushed(gymnasium.vector.VectorEnv[Any, Any, Any]):
        single_action_space = spaces.Dict(
            force=spaces.Box(0, 5, (2,)), gear=spaces.Discrete(3, start=1)
        )
        single_observation_space = spaces.Discrete(2)

        def __init__(self, num_envs: int = 1, **_: Any) -> None:
            self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
            self.num_envs = num_envs
            self.action_space = gymnasium.vector.utils.batch_space(
                self.single_action_space, num_envs
            )
            self.observation_space = spaces.MultiDiscrete([2] * num_envs)

        def reset(self, **_: Any) -> Any:
            return np.zeros(self.num_envs, np.int64), {}

        def step(self, actions: Any) -> Any:
            assert actions in self.action_space
            zeros = np.zeros(self.num_envs)
            return zeros.astype(np.int64), zeros, zeros > 0, zeros > 0, {}

    gymnasium.register("Pushed-v0", vector_entry_point=Pushed)
    try:
        env = make_vector("Pushed-v0", {}, num_envs=3)
        env.reset()
        for _ in range(9):
            env.step(env.action_space.sample())
    finally:
        del gymnasium.registry["Pushed-v0"]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_an_environment_takes_the_actions_of_the_policy(env_id: str) -> None:
    env = make_env(env_id, {})
    env.reset()
    for _ in range(3):
        env.step(env.action_space.sample())
    env.close()
