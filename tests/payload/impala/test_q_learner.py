"""PQN's loss: returns against the recursion written out, gradients against autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from ray.rllib.core.columns import Columns

from payload.impala.module import QUANTILES
from payload.impala.q_learner import QLoss, q_lambda_returns
from payload.impala.train_batch import FIRST

ROWS, STEPS, ACTIONS, NUM_QUANTILES = 3, 5, 4, 3
GAMMA = 0.9


def made_up(seed: int) -> tuple[dict[str, Any], torch.Tensor]:
    """Returns a batch in which episodes end or are cut, and action values."""
    random = np.random.default_rng(seed)
    shape = (ROWS, STEPS + 1)
    ends = random.integers(4, size=shape)
    mask = torch.from_numpy(ends != 1)
    mask[:, -1], mask[:, 0] = False, True
    batch = {
        FIRST: torch.zeros(shape, dtype=torch.bool),
        Columns.ACTIONS: torch.from_numpy(random.integers(ACTIONS, size=shape)),
        Columns.REWARDS: torch.from_numpy(random.normal(size=shape)),
        Columns.TERMINATEDS: torch.from_numpy(ends == 0) & mask,
        Columns.LOSS_MASK: mask,
    }
    quantiles = random.normal(size=(ROWS * (STEPS + 1), ACTIONS, NUM_QUANTILES))
    return batch, torch.from_numpy(quantiles)


def best_of(quantiles: torch.Tensor) -> torch.Tensor:
    """Returns the quantiles of the actions of the largest mean, [N, T + 1, quantiles]."""
    best = quantiles.detach()[torch.arange(len(quantiles)), quantiles.mean(-1).argmax(-1)]
    return best.view(ROWS, STEPS + 1, NUM_QUANTILES)


def returns_step_by_step(best: torch.Tensor, batch: dict[str, Any], lambda_: float) -> torch.Tensor:
    returns = best.clone()
    for row in range(ROWS):
        for t in reversed(range(STEPS)):
            if not batch[Columns.LOSS_MASK][row, t]:
                continue
            next_value = (1 - lambda_) * best[row, t + 1] + lambda_ * returns[row, t + 1]
            discount = GAMMA * ~batch[Columns.TERMINATEDS][row, t]
            returns[row, t] = batch[Columns.REWARDS][row, t] + discount * next_value
    return returns


@given(seed=st.integers(0, 1000), lambda_=st.sampled_from([0.0, 0.65, 1.0]))
def test_each_quantile_of_the_returns_is_that_of_q_lambda(seed: int, lambda_: float) -> None:
    batch, quantiles = made_up(seed)
    best = best_of(quantiles)
    returns = q_lambda_returns(best, batch, GAMMA, lambda_)
    expected = returns_step_by_step(best, batch, lambda_)
    torch.testing.assert_close(returns, expected, rtol=1e-5, atol=1e-5)


@given(seed=st.integers(0, 1000))
def test_the_gradient_is_that_of_the_quantile_huber_loss(seed: int) -> None:
    batch, quantiles = made_up(seed)
    loss = QLoss(batch, {QUANTILES: quantiles.requires_grad_()}, GAMMA, 0.65)
    loss.backward()
    expected = quantile_huber_loss(quantiles, batch)
    torch.testing.assert_close(loss.metrics()["total_loss"], expected.detach())
    (gradient,) = torch.autograd.grad(expected, quantiles)
    torch.testing.assert_close(quantiles.grad, gradient)


def quantile_huber_loss(quantiles: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
    """Returns equation 10 of Dabney et al. (2018), mean over the steps that count."""
    targets = q_lambda_returns(best_of(quantiles), batch, GAMMA, 0.65)
    taken = quantiles[torch.arange(len(quantiles)), batch[Columns.ACTIONS].flatten()]
    taken = taken.view(ROWS, STEPS + 1, NUM_QUANTILES)
    losses = []
    for row, step in batch[Columns.LOSS_MASK].nonzero().tolist():
        for index, quantile in enumerate(taken[row, step]):
            errors = targets[row, step] - quantile
            weights = ((index + 0.5) / NUM_QUANTILES - (errors < 0).float()).abs()
            huber = torch.nn.functional.huber_loss(
                quantile.expand(NUM_QUANTILES), targets[row, step], reduction="none"
            )
            losses.append((weights * huber).mean())
    return torch.stack(losses).sum() / batch[Columns.LOSS_MASK].sum()
