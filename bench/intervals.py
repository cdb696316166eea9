"""Medians and ratios of what was measured several times, with their bootstrap intervals."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from payload.tracking.seed_statistics import CONFIDENCE, RESAMPLES


@dataclass(frozen=True)
class Interval:
    """A figure and the bounds of its interval; infinite where seeds have failed."""

    value: float
    low: float
    high: float

    @classmethod
    def point(cls, value: float) -> Interval:
        """Returns a figure that was measured once."""
        return cls(value, value, value)


def median_interval(values: Sequence[float]) -> Interval:
    """Returns the median and its percentile bootstrap interval; [S] values, infinite ones too."""
    drawn = np.array(values)[_resampled(len(values))]
    return _interval(statistics.median(values), np.median(drawn, axis=1))


def ratio_interval(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Returns the ratio of two medians over the same S seeds, which are resampled together."""
    drawn = _resampled(len(first))
    with np.errstate(invalid="ignore"):  # inf / inf, where both have failed.
        ratios = np.median(np.array(first)[drawn], 1) / np.median(np.array(second)[drawn], 1)
        value = np.divide(np.median(first), np.median(second))
    return _interval(float(value), ratios)


def _resampled(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Returns the elements of each bootstrap sample, [RESAMPLES, count]."""
    return np.random.default_rng(0).integers(count, size=(RESAMPLES, count))


def _interval(value: float, samples: np.ndarray[Any, Any]) -> Interval:
    outside = (1 - CONFIDENCE) / 2
    # A neighbour, not a mean of two: one of them may be infinite.
    low, high = np.quantile(samples, (outside, 1 - outside), method="nearest")
    return Interval(value, float(low), float(high))
