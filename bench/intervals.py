"""Medians and ratios of repeated measurements, with their bootstrap intervals."""

from __future__ import annotations

import math
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
        """Returns the interval of a figure that was measured once."""
        return cls(value, value, value)


def median_interval(values: Sequence[float]) -> Interval:
    """Returns the median of [S] values, which may be infinite, and its bootstrap interval."""
    samples = np.array(values)[_resampled(len(values))]
    return _interval(statistics.median(values), np.median(samples, axis=1))


def percentile(values: Sequence[float], percent: float) -> float:
    """Returns a percentile of values, which may be infinite, interpolated between neighbours."""
    below, above = (float(np.percentile(values, percent, method=m)) for m in ("lower", "higher"))
    if below == above or math.isinf(above):  # inf - inf and 0 * inf are not numbers.
        return above
    return float(np.percentile(values, percent))


def ratio_interval(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Returns the ratio of two medians over the same S seeds, which are resampled together."""
    indices = _resampled(len(first))
    with np.errstate(invalid="ignore"):  # inf / inf, if both failed.
        ratios = np.median(np.array(first)[indices], 1) / np.median(np.array(second)[indices], 1)
        value = np.divide(np.median(first), np.median(second))
    return _interval(float(value), ratios)


def _resampled(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Returns the indices of each bootstrap sample, [RESAMPLES, count]."""
    return np.random.default_rng(0).integers(count, size=(RESAMPLES, count))


def _interval(value: float, samples: np.ndarray[Any, Any]) -> Interval:
    tail = (1 - CONFIDENCE) / 2
    # The nearest sample, not a mean of two, one of which may be infinite.
    low, high = np.quantile(samples, (tail, 1 - tail), method="nearest")
    return Interval(value, float(low), float(high))
