"""PQN's learner: Q(lambda) without a target network (Gallici et al. 2024), over quantiles."""

from dataclasses import replace
from typing import Any

import torch
from ray.rllib.core.columns import Columns

from payload.impala.learner import TOTAL_LOSS, FragmentLearner
from payload.impala.masked import explained_variance, masked_mean
from payload.impala.module import QUANTILES
from payload.impala.schedule import GREEDY
from payload.impala.vtrace import vtrace


class QLearner(FragmentLearner):
    """Regresses quantiles of the return of each action taken to those of its Q(lambda) return.

    The network's layer normalisation replaces a target network (section 3).
    """

    def build(self) -> None:
        super().build()
        self.update_settings = replace(self.update_settings, temperature=GREEDY)

    def loss_of(self, minibatch: dict[str, Any], outputs: dict[str, Any]) -> "QLoss":
        settings = self.config
        return QLoss(minibatch, outputs, settings.gamma, settings.learner_config_dict["lambda_"])


class QLoss:
    """The quantile Huber loss of a minibatch: equation 10 of Dabney et al. (2018), kappa = 1."""

    def __init__(
        self, batch: dict[str, Any], outputs: dict[str, Any], gamma: float, lambda_: float
    ) -> None:
        """
        Args:
            batch: Columns [N, T + 1], see FragmentsToTrainBatch.
            outputs: The module's; QUANTILES, [N * (T + 1), actions, quantiles], row by row.
        """
        self._output = outputs[QUANTILES]
        self._mask = batch[Columns.LOSS_MASK]
        quantiles = self._output.detach()
        num_observations, _, num_quantiles = quantiles.shape
        observations = torch.arange(num_observations, device=quantiles.device)
        self._taken = observations, batch[Columns.ACTIONS].flatten()
        taken = quantiles[self._taken].view(*self._mask.shape, -1)
        best = quantiles[observations, quantiles.mean(-1).argmax(-1)].view_as(taken)
        targets = q_lambda_returns(best, batch, gamma, lambda_)
        # [N, T + 1, quantiles, quantiles of the target]
        errors = targets[..., None, :] - taken[..., None]
        clipped = errors.clamp(-1.0, 1.0)
        midpoints = (torch.arange(num_quantiles, device=taken.device) + 0.5) / num_quantiles
        slopes = (midpoints[:, None] - (errors < 0).float()).abs() * clipped
        self._gradient = -slopes.mean(-1) * self._mask[..., None] / self._mask.sum()
        self._losses = (slopes * (errors - 0.5 * clipped)).mean(-1).sum(-1)
        self._returns = targets.mean(-1)
        self._errors = torch.where(self._mask, taken.mean(-1) - self._returns, 0.0)
        self._best = best.mean(-1)

    def backward(self) -> None:
        """Adds the gradient to the gradients of the module's parameters."""
        gradient = torch.zeros_like(self._output)
        gradient[self._taken] = self._gradient.flatten(0, 1)
        self._output.backward(gradient)

    def metrics(self) -> dict[str, torch.Tensor]:
        """Returns the loss, the mean value and the explained variance, by metric name."""
        return {
            TOTAL_LOSS: masked_mean(self._losses, self._mask),
            "qf_mean": masked_mean(self._best, self._mask),
            "vf_explained_var": explained_variance(self._returns, self._errors, self._mask),
        }


def q_lambda_returns(
    best: torch.Tensor, batch: dict[str, Any], gamma: float, lambda_: float
) -> torch.Tensor:
    """Returns Peng's Q(lambda) return of each slot, quantile by quantile: PQN's algorithm 1.

    G_t = r_t + gamma ((1 - lambda) max Q_{t+1} + lambda G_{t+1}), without importance ratios: this
    is V-trace's recursion with ratios of 1, over the values of the best actions.

    Args:
        best: [N, T + 1, quantiles] of the best action in each slot; the result has this shape too.
        batch: Columns [N, T + 1]; the return of a slot outside LOSS_MASK is `best` itself.
    """
    rewards = batch[Columns.REWARDS].t()[:-1, :, None]
    returns = vtrace(
        values=best.transpose(0, 1),
        rewards=rewards,
        discounts=gamma * (~batch[Columns.TERMINATEDS].t()[:-1, :, None]).float(),
        log_rhos=torch.zeros_like(rewards),
        mask=batch[Columns.LOSS_MASK].t()[:-1, :, None],
        lambda_=lambda_,
    )
    return torch.cat([returns.targets.transpose(0, 1), best[:, -1:]], dim=1)
