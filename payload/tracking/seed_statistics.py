"""What several seeds of one setting have reached: mean, interquartile mean, and how sure it is.

After Agarwal et al. (2021), "Deep Reinforcement Learning at the Edge of the Statistical Precipice",
and its library rliable, for a single task.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
"""Bootstrap samples; the bounds of an interval then vary by about a hundredth of its width."""
CONFIDENCE = 0.95
POINTS = 200
"""Environment steps at which curves are compared."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SeedStatistics:
    """The returns of S seeds at P environment steps, over the seeds."""

    env_steps: Floats
    """[P]"""
    mean: Floats
    """[P]"""
    iqm: Floats
    """Mean of the middle half of the seeds, [P]."""
    low: Floats
    high: Floats
    """Bounds of the interquartile mean's bootstrap interval, [P]; NaN with a single seed."""


def seed_statistics(curves: Sequence[tuple[Floats, Floats]]) -> SeedStatistics:
    """Compares curves over the environment steps that all of them have reached.

    Args:
        curves: For each seed its environment steps, increasing, and its mean returns, [T] each.
    """
    first = max(float(steps[0]) for steps, _ in curves)
    last = min(float(steps[-1]) for steps, _ in curves)
    env_steps = np.linspace(min(first, last), last, POINTS)
    returns = np.stack([np.interp(env_steps, *curve) for curve in curves])
    low, high = bootstrap_interval(returns)
    return SeedStatistics(env_steps, returns.mean(0), interquartile_mean(returns), low, high)


def interquartile_mean(returns: Floats) -> Floats:
    """Returns the mean of the middle half of [..., S, P] over S, as rliable does: a quarter of the
    seeds, rounded down, is left out at each end.
    """
    count = returns.shape[-2]
    cut = count // 4
    middle: Floats = np.sort(returns, axis=-2)[..., cut : count - cut, :].mean(-2)
    return middle


def bootstrap_interval(returns: Floats) -> tuple[Floats, Floats]:
    """Returns the bounds of the percentile interval of the interquartile mean of [S, P], [P] each;
    NaN with a single seed.
    """
    count, points = returns.shape
    if count == 1:
        return np.full(points, np.nan), np.full(points, np.nan)
    drawn = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    means = interquartile_mean(returns[drawn])
    outside = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, (outside, 1 - outside), axis=0)
    return low, high
