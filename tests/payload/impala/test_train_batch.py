"""The learner's train batch, built fragment by fragment and, to compare, step by step."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO

from payload.impala.rollout_fragment import RolloutFragment
from payload.impala.train_batch import FIRST, FRAMES, FragmentsToTrainBatch, stack_frames

PATIENT = settings(deadline=None, max_examples=50)
"""A busy machine must not fail a test."""
IMAGE = (2, 3)
NUM_ACTIONS = 6
CONTINUES, LOST_LIFE, TERMINATED, TRUNCATED = range(4)
STEPS = st.integers(2, 6)
STACKS = st.integers(1, 4)

TrainBatch = dict[str, torch.Tensor]


@st.composite
def fragments(draw: st.DrawFn, steps: int, stack: int) -> RolloutFragment:
    """Draws a fragment in which any step may lose a life, or end or truncate an episode."""
    num_envs = draw(st.integers(1, 3))
    shape = (steps, num_envs)
    what = draw(arrays(np.int64, shape, elements=st.integers(CONTINUES, TRUNCATED)))
    random = np.random.default_rng(draw(st.integers(0, 1000)))
    first = np.zeros((steps + 1, num_envs), np.bool_)
    first[0] = draw(arrays(np.bool_, num_envs))
    first[1:] = (what == TERMINATED) | (what == TRUNCATED)
    frames = random.integers(1, 256, (stack + steps, num_envs, *IMAGE), np.uint8)
    frames[: stack - 1, first[0]] = 0
    fragment = RolloutFragment(
        frames=frames,
        first=first,
        actions=random.integers(NUM_ACTIONS, size=shape, dtype=np.uint8),
        action_logp=-random.exponential(size=shape).astype(np.float32),
        rewards=draw(arrays(np.float32, shape, elements=st.sampled_from([-7, -1, 0, 0.5, 1, 30]))),
        terminated=(what == LOST_LIFE) | (what == TERMINATED),
        truncated=what == TRUNCATED,
        weights_seq_no=draw(st.integers(0, 9)),
    )
    for array in vars(fragment).values():
        if isinstance(array, np.ndarray):
            # Ray's object store returns read-only arrays.
            array.flags.writeable = False
    return fragment


def batches(min_size: int = 1, max_size: int = 3) -> st.SearchStrategy[list[RolloutFragment]]:
    """Draws the fragments of one train batch: their T and K are the same."""
    return st.tuples(STEPS, STACKS).flatmap(
        lambda sizes: st.lists(fragments(*sizes), min_size=min_size, max_size=max_size)
    )


@cache
def connector(clip_rewards: bool) -> FragmentsToTrainBatch:
    """Returns one connector for all examples: RLlib inspects the whole call stack to make one."""
    return FragmentsToTrainBatch(
        Box(0, 255, (4, *IMAGE), np.uint8), Discrete(NUM_ACTIONS), clip_rewards=clip_rewards
    )


def connect(episodes: list[RolloutFragment], clip_rewards: bool = True) -> TrainBatch:
    return connector(clip_rewards)(episodes=episodes, batch={})[DEFAULT_MODULE_ID]


def stack_at(fragment: RolloutFragment, env: int, time: int) -> npt.NDArray[np.uint8]:
    """Walks back from one observation to its episode's start, at most K frames."""
    stack = len(fragment.frames) - len(fragment.first) + 1
    newest = stack - 1 + time
    observation = np.zeros((stack, *IMAGE), np.uint8)
    for age in range(stack):
        observation[-1 - age] = fragment.frames[newest - age, env]
        if time - age >= 0 and fragment.first[time - age, env]:
            break
    return observation


def step_by_step(episodes: list[RolloutFragment]) -> dict[str, npt.NDArray[Any]]:
    """Builds the train batch slot by slot, with clipped rewards and stacked frames."""
    columns: dict[str, list[Any]] = defaultdict(list)
    for fragment in episodes:
        steps, num_envs = fragment.actions.shape
        for env in range(num_envs):
            row: dict[str, list[Any]] = defaultdict(list)
            for t in range(steps):
                reward = float(fragment.rewards[t, env])
                row[Columns.OBS].append(stack_at(fragment, env, t))
                row[Columns.ACTIONS].append(fragment.actions[t, env])
                row[Columns.ACTION_LOGP].append(fragment.action_logp[t, env])
                row[Columns.REWARDS].append(max(-1.0, min(1.0, reward)))
                row[Columns.TERMINATEDS].append(fragment.terminated[t, env])
                row[Columns.LOSS_MASK].append(not fragment.truncated[t, env])
            row[Columns.OBS].append(stack_at(fragment, env, steps))
            for name in (Columns.ACTIONS, Columns.ACTION_LOGP, Columns.REWARDS):
                row[name].append(0)
            row[Columns.TERMINATEDS].append(False)
            row[Columns.LOSS_MASK].append(False)
            for name, values in row.items():
                columns[name].append(values)
            columns[WEIGHTS_SEQ_NO].append(fragment.weights_seq_no)
    return {name: np.array(values) for name, values in columns.items()}


COLUMNS = {
    FRAMES: torch.uint8,
    FIRST: torch.bool,
    Columns.ACTIONS: torch.int64,
    Columns.ACTION_LOGP: torch.float32,
    Columns.REWARDS: torch.float32,
    Columns.TERMINATEDS: torch.bool,
    Columns.LOSS_MASK: torch.bool,
    WEIGHTS_SEQ_NO: torch.int64,
}


@given(episodes=batches())
@PATIENT
def test_columns_are_built_step_by_step(episodes: list[RolloutFragment]) -> None:
    columns, expected = connect(episodes), step_by_step(episodes)
    frames, first = columns.pop(FRAMES), columns.pop(FIRST)
    columns[Columns.OBS] = stack_frames(frames, first, torch.zeros_like(frames[0, 0]))
    assert columns.keys() == expected.keys()
    for name, column in columns.items():
        np.testing.assert_array_equal(column, expected[name], err_msg=name)


@given(batches())
@PATIENT
def test_columns_have_the_learners_types(episodes: list[RolloutFragment]) -> None:
    assert {name: column.dtype for name, column in connect(episodes).items()} == COLUMNS


@given(batches(min_size=2))
@PATIENT
def test_fragments_follow_one_another_in_the_batch(episodes: list[RolloutFragment]) -> None:
    together = connect(episodes)
    apart = [connect([fragment]) for fragment in episodes]
    for name, column in together.items():
        torch.testing.assert_close(column, torch.cat([columns[name] for columns in apart]))


@given(STACKS, st.data())
@PATIENT
def test_fragments_of_different_lengths_are_refused(stack: int, data: st.DataObject) -> None:
    steps = data.draw(st.lists(STEPS, min_size=2, max_size=3, unique=True))
    episodes = [data.draw(fragments(length, stack)) for length in steps]
    with pytest.raises(ValueError, match="different lengths"):
        connect(episodes)


@given(batches())
@PATIENT
def test_unclipped_rewards_are_the_games_own(episodes: list[RolloutFragment]) -> None:
    rewards = connect(episodes, clip_rewards=False)[Columns.REWARDS]
    assert rewards.sum() == sum(fragment.rewards.sum() for fragment in episodes)


@given(batches(max_size=1))
@PATIENT
def test_clipping_leaves_the_fragments_rewards_alone(episodes: list[RolloutFragment]) -> None:
    before = episodes[0].rewards.copy()
    connect(episodes)
    np.testing.assert_array_equal(episodes[0].rewards, before)


@given(batches(max_size=1))
@PATIENT
def test_bootstrap_slots_are_masked(episodes: list[RolloutFragment]) -> None:
    mask = connect(episodes)[Columns.LOSS_MASK]
    assert not mask[:, -1].any()


@given(batches(max_size=1))
@PATIENT
def test_of_all_steps_the_truncated_ones_are_masked(episodes: list[RolloutFragment]) -> None:
    (fragment,) = episodes
    mask = connect(episodes)[Columns.LOSS_MASK]
    np.testing.assert_array_equal(mask[:, :-1], ~fragment.truncated.T)


@given(batches(max_size=1))
@PATIENT
def test_the_batch_shares_no_memory_with_a_fragment(episodes: list[RolloutFragment]) -> None:
    # A fragment from Ray's object store is read-only, which PyTorch does not support.
    frames = connect(episodes)[FRAMES].numpy()
    assert not np.shares_memory(frames, episodes[0].frames)
