"""PQN's learner: Q(lambda) without a target network (Gallici et al. 2024)."""

from dataclasses import replace
from typing import Any

import torch
from ray.rllib.core.columns import Columns

from payload.impala.learner import TOTAL_LOSS, FragmentLearner
from payload.impala.masked import explained_variance, masked_mean
from payload.impala.schedule import GREEDY
from payload.impala.train_batch import FIRST
from payload.impala.vtrace import vtrace


class QLearner(FragmentLearner):
    """Regresses the value of each action taken to its Q(lambda) return.

    The network's layer normalisation replaces a target network (section 3).
    """

    def build(self) -> None:
        super().build()
        self.update_settings = replace(self.update_settings, temperature=GREEDY)

    def loss_of(self, minibatch: dict[str, Any], outputs: dict[str, Any]) -> "QLoss":
        settings = self.config
        return QLoss(minibatch, outputs, settings.gamma, settings.learner_config_dict["lambda_"])


class QLoss:
    """Half the mean squared error of a minibatch's action values."""

    def __init__(
        self, batch: dict[str, Any], outputs: dict[str, Any], gamma: float, lambda_: float
    ) -> None:
        """
        Args:
            batch: Columns [N, T + 1], see FragmentsToTrainBatch.
            outputs: The module's outputs, [N * (T + 1), actions], row by row.
        """
        rows, slots = batch[FIRST].shape
        self._output = outputs[Columns.ACTION_DIST_INPUTS]
        self._actions = batch[Columns.ACTIONS].view(-1, 1)
        values = self._output.detach()
        self._mask = batch[Columns.LOSS_MASK]
        self._num_steps = self._mask.sum()
        best = values.amax(-1).view(rows, slots)
        self._targets = q_lambda_returns(best, batch, gamma, lambda_)
        taken_values = values.gather(-1, self._actions).view(rows, slots)
        self._errors = torch.where(self._mask, taken_values - self._targets, 0.0)
        self._best = best

    def backward(self) -> None:
        """Adds the gradient to the gradients of the module's parameters."""
        gradient = torch.zeros_like(self._output)
        errors = (self._errors / self._num_steps).view(-1, 1)
        self._output.backward(gradient.scatter_(-1, self._actions, errors))

    def metrics(self) -> dict[str, torch.Tensor]:
        """Returns the loss, the mean value and the explained variance, by metric name."""
        return {
            TOTAL_LOSS: 0.5 * masked_mean(self._errors.square(), self._mask),
            "qf_mean": masked_mean(self._best, self._mask),
            "vf_explained_var": explained_variance(self._targets, self._errors, self._mask),
        }


def q_lambda_returns(
    best: torch.Tensor, batch: dict[str, Any], gamma: float, lambda_: float
) -> torch.Tensor:
    """Returns Peng's Q(lambda) return of each slot, [N, T + 1]: the paper's algorithm 1.

    G_t = r_t + gamma ((1 - lambda) max Q_{t+1} + lambda G_{t+1}), without importance ratios: this
    is V-trace's recursion with ratios of 1, over the values of the best actions.

    Args:
        best: [N, T + 1], the best action's value in each slot.
        batch: Columns [N, T + 1]; the return of a slot outside LOSS_MASK is its own value.
    """
    returns = vtrace(
        values=best.t(),
        rewards=batch[Columns.REWARDS].t()[:-1],
        discounts=gamma * (~batch[Columns.TERMINATEDS].t()[:-1]).float(),
        log_rhos=torch.zeros_like(best.t()[:-1]),
        mask=batch[Columns.LOSS_MASK].t()[:-1],
        lambda_=lambda_,
    )
    return torch.cat([returns.targets.t(), best[:, -1:]], dim=1)
