"""Advantages over a running deviation, against the weighted moments written out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from payload.impala.advantages import DECAY, RunningNormalizer

STEPS = 6
MINIBATCHES = arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.just(STEPS)),
    elements=st.floats(-2.0, 2.0, width=16),
)


@given(MINIBATCHES)
def test_mean_and_deviation_are_of_all_minibatches_each_weighted_by_its_age(
    minibatches: npt.NDArray[np.float64],
) -> None:
    normalize = RunningNormalizer()
    for minibatch in minibatches:
        normalized = normalize(torch.from_numpy(minibatch))
    weights = np.repeat(DECAY ** np.arange(len(minibatches))[::-1], STEPS)
    mean = np.average(minibatches.ravel(), weights=weights)
    variance = np.average((minibatches.ravel() - mean) ** 2, weights=weights)
    np.testing.assert_allclose(
        normalized * (np.sqrt(variance) + 1e-8), minibatches[-1] - mean, atol=1e-6
    )


def test_a_minibatch_without_a_point_stays_small_beside_one_with_it() -> None:
    normalize = RunningNormalizer()
    normalize(torch.tensor([1.0, -1.0]))
    assert normalize(torch.tensor([0.01, -0.01])).abs().max() < 0.02


def test_advantages_that_are_not_finite_are_not_remembered() -> None:
    normalize = RunningNormalizer()
    first = normalize(torch.tensor([1.0, -1.0]))
    normalize(torch.tensor([torch.nan, 1.0]))
    torch.testing.assert_close(normalize(torch.tensor([1.0, -1.0])), first)
