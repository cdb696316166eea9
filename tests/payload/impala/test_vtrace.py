"""V-trace against equation 1 of the paper, read literally, and against RLlib's own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from ray.rllib.algorithms.impala import vtrace_torch

from payload.impala.vtrace import VTraceReturns, vtrace

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

PATIENT = settings(deadline=None)
"""A busy machine must not fail a test."""
VALUE = st.floats(-10.0, 10.0, width=32)
LOG_RHO = st.floats(-4.0, 4.0, width=32)
DISCOUNT = st.sampled_from([0.0, 0.9, 0.99, 1.0])
CLIP = st.floats(0.1, 4.0)
LAMBDA = st.sampled_from([0.0, 1.0]) | st.floats(0.0, 1.0)


@dataclass(frozen=True)
class Trajectories:
    """N trajectories of T steps and what V-trace makes of them."""

    values: Floats
    rewards: Floats
    discounts: Floats
    log_rhos: Floats
    mask: Bools
    lambda_: float = 1.0
    clip_rho: float = 1.0
    clip_pg_rho: float = 1.0

    def vtrace(self, dtype: torch.dtype = torch.float64) -> VTraceReturns:
        returns: VTraceReturns = vtrace(
            values=torch.tensor(self.values, dtype=dtype),
            rewards=torch.tensor(self.rewards, dtype=dtype),
            discounts=torch.tensor(self.discounts, dtype=dtype),
            log_rhos=torch.tensor(self.log_rhos, dtype=dtype),
            mask=torch.tensor(self.mask),
            lambda_=self.lambda_,
            clip_rho=self.clip_rho,
            clip_pg_rho=self.clip_pg_rho,
        )
        return returns


@st.composite
def trajectories(draw: st.DrawFn, truncations: bool = True) -> Trajectories:
    steps, envs = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    shape = (steps, envs)
    mask = draw(arrays(np.bool_, shape)) if truncations else np.ones(shape, np.bool_)
    return Trajectories(
        values=draw(arrays(np.float64, (steps + 1, envs), elements=VALUE)),
        rewards=draw(arrays(np.float64, shape, elements=VALUE)),
        discounts=draw(arrays(np.float64, shape, elements=DISCOUNT)),
        log_rhos=draw(arrays(np.float64, shape, elements=LOG_RHO)),
        mask=mask,
        lambda_=draw(LAMBDA),
        clip_rho=draw(CLIP),
        clip_pg_rho=draw(CLIP),
    )


def horizon(mask: Bools, s: int) -> int:
    """Returns the index of the value that bootstraps step `s`: the next truncated step, or T."""
    return next((t for t in range(s, len(mask)) if not mask[t]), len(mask))


def equation_1(case: Trajectories, env: int) -> Floats:
    """v_s = V(x_s) + sum_t gamma^(t-s) (prod_i c_i) delta_t V, for every s of one environment.

    c_i = lambda min(1, pi/mu) as in remark 2, rho_t = min(rho-bar, pi/mu); gamma is each
    step's own. The sum ends where the trajectory ends or is truncated.
    """
    value, reward, gamma = case.values[:, env], case.rewards[:, env], case.discounts[:, env]
    ratio = [np.exp(log_rho) for log_rho in case.log_rhos[:, env]]
    targets = []
    for s in range(len(reward)):
        target = value[s]
        for t in range(s, horizon(case.mask[:, env], s)):
            gammas, traces = 1.0, 1.0
            for i in range(s, t):
                gammas *= gamma[i]
                traces *= case.lambda_ * min(1.0, ratio[i])
            rho = min(case.clip_rho, ratio[t])
            delta = rho * (reward[t] + gamma[t] * value[t + 1] - value[t])
            target += gammas * traces * delta
        targets.append(target)
    return np.array(targets)


def policy_gradient_weights(case: Trajectories, env: int) -> Floats:
    """rho_s (r_s + gamma v_{s+1} - V(x_s)) of section 4.2; 0 at a truncated step."""
    value = case.values[:, env]
    targets = [*equation_1(case, env), value[-1]]
    weights = []
    for s, (reward, gamma) in enumerate(
        zip(case.rewards[:, env], case.discounts[:, env], strict=True)
    ):
        rho = min(case.clip_pg_rho, np.exp(case.log_rhos[s, env]))
        weight = rho * (reward + gamma * targets[s + 1] - value[s])
        weights.append(weight if case.mask[s, env] else 0.0)
    return np.array(weights)


@given(trajectories())
@PATIENT
def test_targets_are_equation_1_of_the_paper(case: Trajectories) -> None:
    expected = [equation_1(case, env) for env in range(case.rewards.shape[1])]
    np.testing.assert_allclose(case.vtrace().targets.T, expected, rtol=1e-9, atol=1e-9)


@given(trajectories())
@PATIENT
def test_advantages_are_those_of_section_4_2(case: Trajectories) -> None:
    expected = [policy_gradient_weights(case, env) for env in range(case.rewards.shape[1])]
    np.testing.assert_allclose(case.vtrace().advantages.T, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("ours", "theirs"), [("targets", "vs"), ("advantages", "pg_advantages")])
@given(case=trajectories(truncations=False))
@PATIENT
def test_lambda_1_without_truncations_is_rllibs_vtrace(
    case: Trajectories, ours: str, theirs: str
) -> None:
    # RLlib always computes in single precision.
    reference = vtrace_torch.from_importance_weights(
        log_rhos=torch.from_numpy(case.log_rhos),
        discounts=torch.from_numpy(case.discounts),
        rewards=torch.from_numpy(case.rewards),
        values=torch.from_numpy(case.values[:-1]),
        bootstrap_value=torch.from_numpy(case.values[-1]),
        clip_rho_threshold=case.clip_rho,
        clip_pg_rho_threshold=case.clip_pg_rho,
    )
    returns = replace(case, lambda_=1.0).vtrace(torch.float32)
    torch.testing.assert_close(getattr(returns, ours), getattr(reference, theirs))


@given(trajectories())
@PATIENT
def test_single_precision_agrees_with_double(case: Trajectories) -> None:
    single, double = case.vtrace(torch.float32), case.vtrace()
    np.testing.assert_allclose(single.targets, double.targets, rtol=1e-4, atol=1e-3)


@given(trajectories(), st.data())
@PATIENT
def test_nothing_after_a_truncated_step_reaches_a_target_before_it(
    case: Trajectories, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(case.rewards) - 1), "truncated step")
    mask = case.mask.copy()
    mask[cut] = False
    case = replace(case, mask=mask)

    def other_future(values: Floats, start: int, elements: st.SearchStrategy[float]) -> Floats:
        future = data.draw(arrays(np.float64, values[start:].shape, elements=elements))
        return np.concatenate([values[:start], future])

    other = replace(
        case,
        values=other_future(case.values, cut + 1, VALUE),
        rewards=other_future(case.rewards, cut, VALUE),
        discounts=other_future(case.discounts, cut, DISCOUNT),
        log_rhos=other_future(case.log_rhos, cut, LOG_RHO),
    )
    targets, other_targets = case.vtrace().targets, other.vtrace().targets
    torch.testing.assert_close(other_targets[: cut + 1], targets[: cut + 1])


def test_a_truncated_step_bootstraps_the_one_before() -> None:
    case = Trajectories(
        values=np.array([[1.0], [2.0], [40.0], [5.0]]),
        rewards=np.array([[3.0], [7.0], [9.0]]),
        discounts=np.full((3, 1), 0.5),
        log_rhos=np.zeros((3, 1)),
        mask=np.array([[True], [True], [False]]),
    )
    # 7 + 0.5 * 40; the step before that: 3 + 0.5 * 27.
    assert case.vtrace().targets[:2, 0].tolist() == [16.5, 27.0]


def test_a_terminated_step_bootstraps_nothing() -> None:
    case = Trajectories(
        values=np.array([[1.0], [2.0], [40.0]]),
        rewards=np.array([[3.0], [7.0]]),
        discounts=np.array([[0.5], [0.0]]),
        log_rhos=np.zeros((2, 1)),
        mask=np.ones((2, 1), np.bool_),
    )
    assert case.vtrace().targets[:, 0].tolist() == [6.5, 7.0]


@given(trajectories(truncations=False))
@PATIENT
def test_on_policy_targets_are_discounted_returns(case: Trajectories) -> None:
    on_policy = replace(case, log_rhos=0.0 * case.log_rhos, lambda_=1.0, clip_rho=1.0)
    expected = case.values[-1]
    returns = []
    for reward, discount in zip(case.rewards[::-1], case.discounts[::-1], strict=True):
        expected = reward + discount * expected
        returns.append(expected)
    np.testing.assert_allclose(on_policy.vtrace().targets, returns[::-1], rtol=1e-9, atol=1e-9)


@given(trajectories())
@PATIENT
def test_lambda_0_looks_one_step_ahead(case: Trajectories) -> None:
    deltas = case.rewards + case.discounts * case.values[1:] - case.values[:-1]
    rhos = np.minimum(case.clip_rho, np.exp(case.log_rhos)) * case.mask
    np.testing.assert_allclose(
        replace(case, lambda_=0.0).vtrace().targets,
        case.values[:-1] + rhos * deltas,
        rtol=1e-9,
        atol=1e-9,
    )


@given(trajectories(), st.sampled_from([-1e4, 1e4]))
@PATIENT
def test_a_ratio_beyond_floating_point_gives_finite_returns(
    case: Trajectories, log_rho: float
) -> None:
    returns = replace(case, log_rhos=np.full_like(case.log_rhos, log_rho)).vtrace(torch.float32)
    assert torch.isfinite(torch.cat(returns)).all()


def test_returns_carry_no_gradient() -> None:
    values = torch.zeros(3, 1, requires_grad=True)
    column = torch.zeros(2, 1)
    returns = vtrace(
        values=values,
        rewards=column,
        discounts=column,
        log_rhos=column,
        mask=torch.ones(2, 1, dtype=torch.bool),
    )
    assert not any(tensor.requires_grad for tensor in returns)
