"""PQN's loss: returns against the recursion written out, gradients against autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from ray.rllib.core.columns import Columns

from payload.impala.q_learner import QLoss, q_lambda_returns
from payload.impala.train_batch import FIRST

ROWS, STEPS, ACTIONS = 3, 5, 4
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
    return batch, torch.from_numpy(random.normal(size=(ROWS * (STEPS + 1), ACTIONS)))


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
def test_returns_are_those_of_q_lambda(seed: int, lambda_: float) -> None:
    batch, values = made_up(seed)
    best = values.amax(-1).view(ROWS, STEPS + 1)
    returns = q_lambda_returns(best, batch, GAMMA, lambda_)
    expected = returns_step_by_step(best, batch, lambda_)
    torch.testing.assert_close(returns, expected, rtol=1e-5, atol=1e-5)


@given(seed=st.integers(0, 1000))
def test_the_gradient_is_that_of_half_the_squared_error(seed: int) -> None:
    batch, values = made_up(seed)
    outputs = {Columns.ACTION_DIST_INPUTS: values.requires_grad_()}
    loss = QLoss(batch, outputs, GAMMA, 0.65)
    loss.backward()
    taken_values = values.gather(-1, batch[Columns.ACTIONS].view(-1, 1)).view(ROWS, STEPS + 1)
    best = values.detach().amax(-1).view(ROWS, STEPS + 1)
    errors = taken_values - q_lambda_returns(best, batch, GAMMA, 0.65)
    expected = 0.5 * errors[batch[Columns.LOSS_MASK]].square().mean()
    torch.testing.assert_close(loss.metrics()["total_loss"], expected.detach())
    (gradient,) = torch.autograd.grad(expected, values)
    torch.testing.assert_close(values.grad, gradient)
