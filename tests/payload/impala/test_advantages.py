"""Advantages over a running deviation, against the weighted moments written out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from payload.impala.policy_gradient_loss import DECAY, RunningNormalizer

STEPS = 6
EVERY, BOTH = torch.ones(STEPS, dtype=torch.bool), torch.ones(2, dtype=torch.bool)
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
        normalized = normalize(torch.from_numpy(minibatch), EVERY)
    weights = np.repeat(DECAY ** np.arange(len(minibatches))[::-1], STEPS)
    mean = np.average(minibatches.ravel(), weights=weights)
    variance = np.average((minibatches.ravel() - mean) ** 2, weights=weights)
    np.testing.assert_allclose(
        normalized * (np.sqrt(variance) + 1e-8), minibatches[-1] - mean, atol=1e-6
    )


def test_a_minibatch_without_a_point_stays_small_beside_one_with_it() -> None:
    normalize = RunningNormalizer()
    normalize(torch.tensor([1.0, -1.0]), BOTH)
    assert normalize(torch.tensor([0.01, -0.01]), BOTH).abs().max() < 0.02


def test_masked_advantages_do_not_count() -> None:
    masked, without = RunningNormalizer(), RunningNormalizer()
    mask = torch.tensor([True, False, True])
    normalized = masked(torch.tensor([1.0, 7.0, -2.0]), mask)
    torch.testing.assert_close(normalized[mask], without(torch.tensor([1.0, -2.0]), BOTH))


def test_its_state_makes_an_equal_one() -> None:
    normalize = RunningNormalizer()
    for advantages in ([1.0, -1.0], [3.0, 4.0]):
        normalize(torch.tensor(advantages), BOTH)
    other = RunningNormalizer(**normalize.state())
    again = torch.tensor([2.0, 0.5])
    torch.testing.assert_close(other(again, BOTH), normalize(again, BOTH), rtol=0, atol=0)


def test_advantages_that_are_not_finite_are_not_remembered() -> None:
    normalize = RunningNormalizer()
    first = normalize(torch.tensor([1.0, -1.0]), BOTH)
    normalize(torch.tensor([torch.nan, 1.0]), BOTH)
    torch.testing.assert_close(normalize(torch.tensor([1.0, -1.0]), BOTH), first)
