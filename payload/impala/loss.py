"""The losses of IMPALA (V-trace policy gradient) and APPO (clipped surrogate), as functions."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from ray.rllib.core.columns import Columns

from payload.impala.train_batch import FIRST

PROXIMAL_LOGP = "proximal_logp"
"""Column of a minibatch, [T, N]: log-probabilities of its actions in an update's first pass."""
DECAY = 0.99
"""Decay of a minibatch's weight with each later one: about the last hundred count."""

PolicyLosses = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Maps logp, proximal logp and advantages to the policy loss of each step; all are [T, N]."""


@dataclass(frozen=True)
class LossTerms:
    """The terms of a loss, a weighted sum: means over the steps of a minibatch that count."""

    policy_loss: torch.Tensor
    value_loss: torch.Tensor
    entropy: torch.Tensor
    uniform_kl: torch.Tensor
    """KL(uniform || policy)."""
    # For the metrics, without gradient.
    explained_variance: torch.Tensor
    """The share of the targets' variance that the values explain."""
    kl: torch.Tensor
    """An estimate of KL(env runner's policy || policy)."""


def loss_terms(
    batch: dict[str, Any],
    outputs: dict[str, Any],
    config: Any,
    policy_losses: PolicyLosses,
    normalize: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None,
) -> LossTerms:
    """Returns the terms of a minibatch's loss.

    Each is a mean over the steps that LOSS_MASK selects. The first pass adds PROXIMAL_LOGP to the
    batch, for later passes.

    Args:
        batch: Columns [N, T + 1], see FragmentsToTrainBatch.
        outputs: The module's, [N * (T + 1), ...], row after row.
        config: RLlib's, with volley's own settings in learner_config_dict.
        normalize: Normalizes advantages, see RunningNormalizer; None leaves them as they are.
    """

    def time_major(column: torch.Tensor) -> torch.Tensor:
        return column.view(len(batch[FIRST]), -1).t()

    values = time_major(outputs[Columns.VF_PREDS])
    all_logp = torch.log_softmax(outputs[Columns.ACTION_DIST_INPUTS], dim=-1)
    actions = batch[Columns.ACTIONS].view(-1, 1)
    logp = time_major(all_logp.gather(-1, actions))[:-1]
    entropy = time_major(-(all_logp.exp() * all_logp).sum(-1))[:-1]
    uniform_kl = time_major(-all_logp.mean(-1) - math.log(all_logp.shape[-1]))[:-1]
    mask = time_major(batch[Columns.LOSS_MASK])[:-1]
    log_rhos = logp - time_major(batch[Columns.ACTION_LOGP])[:-1]
    targets, advantages = vtrace(
        values=values.detach(),
        rewards=time_major(batch[Columns.REWARDS])[:-1],
        discounts=config.gamma * (~time_major(batch[Columns.TERMINATEDS])[:-1]).float(),
        log_rhos=log_rhos.detach(),
        mask=mask,
        lambda_=config.learner_config_dict["lambda_"],
        clip_rho=config.vtrace_clip_rho_threshold,
        clip_pg_rho=config.vtrace_clip_pg_rho_threshold,
    )
    if normalize is not None:
        advantages = normalize(advantages, mask)
    num_steps = mask.sum()

    def mean(values: torch.Tensor) -> torch.Tensor:
        # Not values[mask]: the host would wait for the number of its elements.
        return torch.where(mask, values, 0.0).sum() / num_steps

    errors = targets - values[:-1]
    proximal_logp = batch.setdefault(PROXIMAL_LOGP, logp.detach())
    with torch.no_grad():
        unexplained = mean((errors - mean(errors)).square())
        variance = mean((targets - mean(targets)).square())
        explained_variance = 1.0 - unexplained / variance.clamp(min=1e-8)
        kl = -mean(log_rhos)
    return LossTerms(
        policy_loss=mean(policy_losses(logp, proximal_logp, advantages)),
        value_loss=0.5 * mean(errors.square()),
        entropy=mean(entropy),
        uniform_kl=mean(uniform_kl),
        explained_variance=explained_variance,
        kl=kl,
    )


def policy_gradient(logp: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """Returns each step's V-trace policy-gradient loss (IMPALA, section 4.2); all are [T, N]."""
    return -logp * advantages


def clipped_surrogate(
    logp: torch.Tensor, proximal_logp: torch.Tensor, advantages: torch.Tensor, clip: float
) -> torch.Tensor:
    """Returns each step's clipped surrogate loss (Schulman et al. 2017, equation 7).

    The ratio is to the learner's own policy before the minibatch's passes (the decoupled objective
    of Hilton et al. 2021, section 3), and V-trace's rho, in the advantages, is to the env runner's.
    A ratio to the env runner's policy, some updates old, would already be clipped before the first
    pass.
    """
    ratios = (logp - proximal_logp).exp()
    clipped = ratios.clamp(1.0 - clip, 1.0 + clip)
    return -torch.min(ratios * advantages, clipped * advantages)


class VTraceReturns(NamedTuple):
    """Both [T, N] float32, without gradient."""

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
    """Returns x_t = terms_t + decays_t x_{t+1} for every t, with x_T = 0; all are [T, N].

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


class RunningNormalizer:
    """Normalizes advantages by the mean and deviation of recent ones, the newest included.

    Few minibatches contain a point. Normalized by its own deviation (PPO's habit), the noise of a
    minibatch without one would weigh as much as the point in another.
    """

    def __init__(
        self,
        weight: float = 0.0,
        mean: float = 0.0,
        square: float = 0.0,
        device: torch.device | str = "cpu",
    ) -> None:
        """
        Args:
            weight: Sum of the weights of earlier minibatches; the newest has the weight 1.
            mean: Mean of the advantages.
            square: Mean of their squares.
            device: Device of the advantages; the host never waits for a value.
        """
        self._moments = torch.tensor([mean, square], dtype=torch.float64, device=device)
        self._weight = torch.tensor(weight, dtype=torch.float64, device=device)

    def state(self) -> dict[str, float]:
        """Returns the arguments that create an equal one."""
        mean, square = self._moments.tolist()
        return {"weight": self._weight.item(), "mean": mean, "square": square}

    def __call__(self, advantages: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Returns a minibatch's normalized advantages, [T, N] float32.

        Args:
            mask: [T, N] bool; False where an advantage does not count. A minibatch whose others
                are not finite is not remembered.
        """
        counted = torch.where(mask, advantages, 0.0)
        moments = torch.stack([counted.sum(), counted.square().sum()]) / mask.sum()
        finite = moments.isfinite().all()
        weight = DECAY * self._weight + 1.0
        remembered = self._moments + (moments - self._moments) / weight
        self._weight = torch.where(finite, weight, self._weight)
        self._moments = torch.where(finite, remembered, self._moments)
        mean, square = self._moments
        deviation = (square - mean.square()).clamp(min=0.0).sqrt()
        return (advantages - mean) / (deviation + 1e-8)
