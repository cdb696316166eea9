"""Checks what a vector environment returns; records and logs the true returns of its episodes."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv, VectorWrapper
from ray.rllib.utils.metrics import (
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MEAN,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
)

from payload.environments.environment_faults import EnvironmentFaultError, StepTimeout
from payload.environments.info_metrics import InfoMetrics

ROUNDING = 1e-5
"""How far a value may exceed a bound, relative to the bound: spaces are float32."""
EPISODE_RETURNS = "episode_returns"
EPISODE_LENGTHS = "episode_lengths"
"""Every finished episode's return and length in environment steps, one by one. RLlib's own
EPISODE_RETURN_MEAN is a mean of means of unequal weight, not the mean of the last 100."""
INFO = "info"
"""Below it the same for each number of `info` that is a metric."""


class FinishedEpisode(NamedTuple):
    length: int
    """Environment steps."""
    episode_return: float
    """Sum of the environment's own rewards, neither clipped nor discounted."""
    info: dict[str, float]
    """Numbers of `info` at its end that are metrics."""


class CheckedVector(VectorWrapper):
    """A vector environment that resets in the step after the end of an episode.

    Raises:
        EnvironmentFaultError: An observation or reward is not finite, or an observation is outside
            the space.
    """

    _over: npt.NDArray[np.bool_]
    """The environments whose episode ended in the last step."""

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        clip_rewards: bool = False,
        check_space: bool = False,
        timeout: StepTimeout | None = None,
        info_metrics: InfoMetrics | None = None,
        reward_scale: float = 1.0,
    ) -> None:
        """
        Args:
            clip_rewards: Return the rewards' signs; the episodes keep the environment's own.
            check_space: Compare observations with their space.
            timeout: Renewed before every reset and step.
            reward_scale: Factor of the returned rewards, but not of those of the episodes.
        """
        super().__init__(env)
        self.clip_rewards, self.reward_scale, self.timeout = clip_rewards, reward_scale, timeout
        self._info_metrics = info_metrics or InfoMetrics()
        self._bounds = _bounds(env.single_observation_space) if check_space else None
        self.finished: list[FinishedEpisode] = []
        """Episodes finished since the list was last emptied."""
        self.wanted: npt.NDArray[np.int64] | None = None
        """Number of episodes that still count, per environment, [N]; None: all count."""
        self._start()

    def reset(self, **kwargs: Any) -> Any:
        self._start()
        self._renew_timeout()
        result: tuple[Any, dict[str, Any]] = super().reset(**kwargs)
        self._check(result[0])
        return result

    def step(self, actions: Any) -> Any:
        self._renew_timeout()
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._check(observations)
        _check_finite("a reward", rewards)
        # The first step after the end of an episode is the reset.
        self._returns += rewards * ~self._over
        self._lengths += ~self._over
        self._over = terminated | truncated
        for index in np.flatnonzero(self._over):
            if self.wanted is None or self.wanted[index] > 0:
                length, episode_return = int(self._lengths[index]), float(self._returns[index])
                info = self._info_metrics.at(infos, int(index))
                self.finished.append(FinishedEpisode(length, episode_return, info))
                if self.wanted is not None:
                    self.wanted[index] -= 1
            self._returns[index], self._lengths[index] = 0.0, 0
        if self.clip_rewards:
            rewards = np.sign(rewards)
        return observations, rewards * self.reward_scale, terminated, truncated, infos

    def _check(self, observations: Any) -> None:
        _check_finite("an observation", observations)
        if self._bounds is not None:
            _check_bounds(observations, *self._bounds)

    def _renew_timeout(self) -> None:
        if self.timeout is not None:
            self.timeout.renew()

    def _start(self) -> None:
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._over = np.zeros(self.num_envs, np.bool_)


def _bounds(space: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    """Returns a Box's bounds, with tolerance; None if there is nothing to check."""
    if not isinstance(space, Box) or not (space.bounded_below.any() or space.bounded_above.any()):
        return None
    if space.dtype == np.uint8 and not space.low.any() and (space.high == 0xFF).all():
        return None
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    slack = ROUNDING * np.maximum(1.0, np.abs(np.where(np.isfinite([low, high]), [low, high], 0.0)))
    return low - slack[0], high + slack[1]


def _check_finite(what: str, values: Any) -> None:
    if isinstance(values, dict):
        for part in values.values():
            _check_finite(what, part)
    elif np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
        index = int(np.argwhere(~np.isfinite(values))[0][0])
        raise EnvironmentFaultError(f"environment {index} has returned {what} that is not finite")


def _check_bounds(
    observations: npt.NDArray[Any], low: npt.NDArray[Any], high: npt.NDArray[Any]
) -> None:
    outside = (observations < low) | (observations > high)
    if outside.any():
        index, *place = (int(i) for i in np.argwhere(outside)[0])
        value = observations[(index, *place)]
        raise EnvironmentFaultError(
            f"environment {index} has returned an observation outside observation_space: {value:g} "
            f"at {place}, allowed {low[tuple(place)]:.4g} to {high[tuple(place)]:.4g} "
            "(config.disable_env_checking allows it)"
        )


def log_episodes(metrics: Any, finished: Sequence[FinishedEpisode], window: int) -> None:
    """Logs finished episodes on an env runner's metrics logger.

    Args:
        window: Number of episodes in RLlib's own means.
    """
    for episode in finished:
        metrics.log_value(EPISODE_RETURNS, episode.episode_return, reduce="item_series")
        metrics.log_value(EPISODE_LENGTHS, episode.length, reduce="item_series")
        metrics.log_value(EPISODE_RETURN_MEAN, episode.episode_return, window=window)
        metrics.log_value(EPISODE_LEN_MEAN, episode.length, window=window)
        for name, value in episode.info.items():
            metrics.log_value((INFO, name), value, reduce="item_series")
    metrics.log_value(NUM_EPISODES, len(finished), reduce="sum")
    metrics.log_value(NUM_EPISODES_LIFETIME, len(finished), reduce="lifetime_sum")
