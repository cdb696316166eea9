"""V-trace: returns of a policy from the trajectories of another one (Espeholt et al. 2018)."""

from typing import NamedTuple

import torch


class VTraceReturns(NamedTuple):
    """Both [T, N, ...] float32, without gradient."""

    targets: torch.Tensor
    """v_s of equation 1: what the value function is regressed to."""
    advantages: torch.Tensor
    """rho_s (r_s + gamma v_{s+1} - V(x_s)) of section 4.2: the policy gradient's weight."""


@torch.no_grad()
def vtrace(
    *,
    values: torch.Tensor,
    rewards: torch.Tensor,
    discounts: torch.Tensor,
    log_rhos: torch.Tensor,
    mask: torch.Tensor,
    lambda_: float = 1.0,
    clip_rho: float = 1.0,
    clip_pg_rho: float = 1.0,
) -> VTraceReturns:
    """Computes V-trace targets and advantages.

    Arguments may have further axes, which broadcast.

    Args:
        values: [T + 1, N], V(x_t) of the learner's policy, bootstrap value last.
        rewards: [T, N].
        discounts: [T, N], gamma, or 0 after a step that terminated its episode.
        log_rhos: [T, N], log pi(a|x) - log mu(a|x).
        mask: [T, N] bool; False at a step that was truncated. Such a step gets no delta
            and ends the trace: its value bootstraps the step before it.
        lambda_: The lambda of remark 2; 1 gives the paper's plain n-step targets.
        clip_rho: rho-bar of equation 1 (c-bar, the traces' clip, is 1).
        clip_pg_rho: The clip of the policy gradient's rho.
    """
    rhos = torch.where(mask, log_rhos.exp(), 0.0)
    deltas = rhos.clamp(max=clip_rho) * (rewards + discounts * values[1:] - values[:-1])
    traces = discounts * lambda_ * rhos.clamp(max=1.0)
    targets = values[:-1] + decayed_sums(deltas, traces)
    next_targets = torch.cat([targets[1:], values[-1:]])
    advantages = rhos.clamp(max=clip_pg_rho) * (rewards + discounts * next_targets - values[:-1])
    return VTraceReturns(targets, advantages)


def decayed_sums(terms: torch.Tensor, decays: torch.Tensor) -> torch.Tensor:
    """Returns x_t = terms_t + decays_t x_{t+1} for every t, with x_T = 0; all are [T, N, ...].

    By doubling (Hillis and Steele 1986): after round k every sum has its first 2^k terms. That is
    log2(T) rounds of a few kernels, where a loop over T would launch as many for each step.
    """
    reach = 1
    while reach < len(terms):
        sums = torch.addcmul(terms[:-reach], decays[:-reach], terms[reach:])
        products = decays[:-reach] * decays[reach:]
        terms = torch.cat([sums, terms[-reach:]])
        decays = torch.cat([products, decays[-reach:]])
        reach *= 2
    return terms
