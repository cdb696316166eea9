"""A rollout fragment stores each frame once and still gives back every frame stack."""

from __future__ import annotations

import pickle
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from payload.impala import train_batch
from payload.impala.rollout_fragment import RolloutFragment
from tests.payload.impala.stacks import stacks_of

PATIENT = settings(deadline=None)
"""A busy machine must not fail a test."""
IMAGE = (2, 3)
STEPS, NUM_ENVS, STACK = 32, 16, 4


def fragment_of(
    frames: npt.NDArray[np.uint8], first: npt.NDArray[np.bool_], steps: int, num_envs: int
) -> RolloutFragment:
    """Returns a fragment with these frames, in which nothing else happens."""
    return RolloutFragment(
        frames=frames,
        first=first,
        actions=np.zeros((steps, num_envs), np.uint8),
        action_logp=np.zeros((steps, num_envs), np.float32),
        rewards=np.zeros((steps, num_envs), np.float32),
        terminated=np.zeros((steps, num_envs), np.bool_),
        truncated=np.zeros((steps, num_envs), np.bool_),
        weights_seq_no=0,
    )


@dataclass(frozen=True)
class Play:
    """A fragment, and the frame stacks that its policy saw, [N, T + 1, K, H, W]."""

    fragment: RolloutFragment
    stacks: npt.NDArray[np.uint8]


def picture(time: int, env: int) -> npt.NDArray[np.uint8]:
    """Returns a frame unlike its neighbours, without black pixels that look like padding."""
    pixels = 6 * (3 * time + env) + np.arange(6)
    return (1 + pixels % 255).astype(np.uint8).reshape(IMAGE)


def simulate(first: npt.NDArray[np.bool_], env: int, stack: int) -> list[npt.NDArray[np.uint8]]:
    """Plays one environment; at every episode's start, zeros fill the frame stack."""
    frames = deque([np.zeros(IMAGE, np.uint8)] * stack, maxlen=stack)
    stacks = []
    for time, is_first in enumerate(first):
        if is_first:
            frames.extend([np.zeros(IMAGE, np.uint8)] * stack)
        frames.append(picture(time, env))
        stacks.append(np.stack(frames))
    return stacks


@st.composite
def plays(draw: st.DrawFn) -> Play:
    """Cuts a fragment out of a longer play; episodes start anywhere before and inside it."""
    stack, steps, num_envs = (
        draw(st.integers(1, 5)),
        draw(st.integers(1, 8)),
        draw(st.integers(1, 3)),
    )
    before = draw(st.integers(0, 6))
    first = draw(arrays(np.bool_, (before + steps + 1, num_envs)))
    first[0] = True
    stacks = np.stack([np.stack(simulate(first[:, env], env, stack)) for env in range(num_envs)])
    stacks = stacks[:, before:]
    lookback = stacks[:, 0, :-1].swapaxes(0, 1)
    frames = np.concatenate([lookback, stacks[:, :, -1].swapaxes(0, 1)])
    return Play(fragment_of(frames, first[before:], steps, num_envs), stacks)


@given(plays())
@PATIENT
def test_stacked_observations_are_what_the_policy_saw(play: Play) -> None:
    np.testing.assert_array_equal(stacks_of(play.fragment), play.stacks)


@given(plays())
@PATIENT
def test_a_gpu_stacks_as_a_cpu_does(play: Play) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(train_batch, "_stack_on_cpu", train_batch._stack_on_gpu)
        np.testing.assert_array_equal(stacks_of(play.fragment), play.stacks)


@given(plays())
@PATIENT
def test_the_length_is_the_number_of_agent_steps(play: Play) -> None:
    num_envs, slots = play.stacks.shape[:2]
    assert len(play.fragment) == (slots - 1) * num_envs


@given(plays())
@PATIENT
def test_a_fragment_arrives_as_it_was(play: Play) -> None:
    arrived = pickle.loads(pickle.dumps(play.fragment, protocol=5))
    assert vars(arrived).keys() == vars(play.fragment).keys()
    for name, value in vars(play.fragment).items():
        np.testing.assert_array_equal(vars(arrived)[name], value, err_msg=name)


def test_frames_that_repeat_take_hardly_any_room() -> None:
    frames = np.zeros((STACK - 1 + STEPS + 1, NUM_ENVS, 42, 42), np.uint8)
    frames[:, :, 10:12, 20:22] = 200
    first = np.zeros((STEPS + 1, NUM_ENVS), np.bool_)
    fragment = fragment_of(frames, first, STEPS, NUM_ENVS)
    assert len(pickle.dumps(fragment, protocol=5)) < 100 * len(fragment)


def test_frames_that_do_not_repeat_take_no_more_room_than_they_have() -> None:
    frames = np.random.default_rng(0).integers(
        256, size=(STACK - 1 + STEPS + 1, NUM_ENVS, 42, 42), dtype=np.uint8
    )
    first = np.zeros((STEPS + 1, NUM_ENVS), np.bool_)
    fragment = fragment_of(frames, first, STEPS, NUM_ENVS)
    assert len(pickle.dumps(fragment, protocol=5)) < 2048 * len(fragment)
