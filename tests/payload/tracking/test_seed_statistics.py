"""Mean, interquartile mean and bootstrap interval over seeds."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]

from payload.tracking.seed_statistics import bootstrap_interval, interquartile_mean, seed_statistics


@pytest.mark.parametrize("seeds", [1, 2, 3, 4, 5, 10, 11])
def test_the_interquartile_mean_is_rliables(seeds: int) -> None:
    returns = np.random.default_rng(seeds).normal(size=(seeds, 7))
    assert interquartile_mean(returns) == pytest.approx(stats.trim_mean(returns, 0.25, axis=0))


def test_curves_are_compared_where_all_of_them_are() -> None:
    reached = seed_statistics(
        [
            (np.array([0.0, 10.0]), np.array([0.0, 10.0])),
            (np.array([2.0, 8.0]), np.array([4.0, 4.0])),
        ]
    )
    assert (reached.env_steps[0], reached.env_steps[-1]) == (2.0, 8.0)
    assert (reached.mean[0], reached.mean[-1]) == pytest.approx((3.0, 6.0))


def test_the_interval_contains_the_true_mean_as_often_as_it_says() -> None:
    # 300 trainings of 20 seeds at once.
    returns = np.random.default_rng(5).normal(3.0, size=(20, 300))
    low, high = bootstrap_interval(returns)
    hits = ((low <= 3.0) & (high >= 3.0)).mean()
    # A percentile interval of 20 values is a little narrow.
    assert 0.88 <= hits <= 0.98


def test_a_single_seed_has_no_interval() -> None:
    reached = seed_statistics([(np.array([0.0, 1.0]), np.array([1.0, 2.0]))])
    assert np.isnan(reached.low).all()
    assert reached.iqm[-1] == 2.0
