"""What a vector environment must not return, and how long it may take."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import SyncVectorEnv

from payload.environments.checked_vector import CheckedVector
from payload.environments.environment_faults import EnvironmentFaultError, StepTimeout

MakeWatched = Callable[..., CheckedVector]


class Returning(gymnasium.Env[Any, Any]):
    """An environment that returns what it is given."""

    action_space: gymnasium.spaces.Space[Any] = gymnasium.spaces.Discrete(2)

    def __init__(self, space: Box, value: float, reward: float = 0.0) -> None:
        self.observation_space = self.space = space
        self.value, self.reward = value, reward

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.space.low, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation = np.full_like(self.space.low, self.value)
        return observation, self.reward, False, False, {}


@pytest.fixture
def watched() -> MakeWatched:
    """Makes two environments: the first stays at the lower bound, the second returns a value."""

    def make(space: Box, value: float, reward: float = 0.0, **options: Any) -> CheckedVector:
        low = float(space.low.min())
        env = SyncVectorEnv(
            [lambda: Returning(space, low), lambda: Returning(space, value, reward)]
        )
        watched = CheckedVector(env, **options)
        watched.reset()
        return watched

    return make


UNIT = Box(-1.0, 1.0, (2,), np.float32)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_observation_that_is_not_finite_names_its_environment(
    watched: MakeWatched, value: float
) -> None:
    with pytest.raises(EnvironmentFaultError, match="environment 1 has returned an observation"):
        watched(UNIT, value).step(np.zeros(2, np.int64))


@pytest.mark.parametrize(("value", "check_space"), [(np.nan, False), (7.0, True)])
def test_the_observation_of_a_reset_is_checked_too(value: float, check_space: bool) -> None:
    class Cold(Returning):
        def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
            return np.full_like(self.space.low, self.value), {}

    watched = CheckedVector(SyncVectorEnv([lambda: Cold(UNIT, value)]), check_space=check_space)
    with pytest.raises(EnvironmentFaultError, match="environment 0 has returned an observation"):
        watched.reset()


def test_a_reward_that_is_not_finite_is_a_fault(watched: MakeWatched) -> None:
    with pytest.raises(EnvironmentFaultError, match="environment 1 has returned a reward"):
        watched(UNIT, 0.0, reward=np.nan).step(np.zeros(2, np.int64))


def test_an_observation_outside_its_space_is_named_with_its_place(watched: MakeWatched) -> None:
    with pytest.raises(EnvironmentFaultError, match=r"7 at \[0\], allowed -1 to 1"):
        watched(UNIT, 7.0, check_space=True).step(np.zeros(2, np.int64))


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (UNIT, 1.000001),
        (Box(-1.0, np.inf, (2,), np.float32), 1e6),
        (Box(0, 255, (2,), np.uint8), 255),
    ],
    ids=["by a rounding error", "without a bound", "bytes"],
)
def test_what_a_space_allows_is_not_a_fault(watched: MakeWatched, space: Box, value: float) -> None:
    watched(space, value, check_space=True).step(np.zeros(2, np.int64))


def test_an_environment_that_hangs_is_interrupted_where_it_hangs() -> None:
    timeout = StepTimeout(0.2, may_exit=False)
    with timeout.watch():
        timeout.renew()
        with pytest.raises(EnvironmentFaultError, match=r"no answer for 0.2 s .*checked_vector.py"):
            time.sleep(10)


def test_what_is_done_between_two_watches_may_take_its_time() -> None:
    timeout = StepTimeout(0.1, may_exit=False)
    with timeout.watch():
        timeout.renew()
    time.sleep(0.2)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_watch_leaves_the_signal_handler_that_was_there() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with StepTimeout(10, may_exit=False).watch():
        pass
    assert signal.getsignal(signal.SIGALRM) == before
