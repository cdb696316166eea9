"""The losses of IMPALA (V-trace policy gradient) and APPO (clipped surrogate), with gradients."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner import ENTROPY_KEY

from payload.impala.learner import TOTAL_LOSS
from payload.impala.masked import explained_variance, masked_mean
from payload.impala.train_batch import FIRST
from payload.impala.vtrace import vtrace

PROXIMAL_LOGP = "proximal_logp"
"""Column of a minibatch, [T, N]: log-probabilities of its actions in an update's first pass."""
DECAY = 0.99
"""Decay of a minibatch's weight with each later one: about the last hundred count."""


class PolicyLosses(NamedTuple):
    """Both [T, N]."""

    losses: torch.Tensor
    """The policy loss of each step."""
    slopes: torch.Tensor
    """Its derivative with respect to the log-probability of the step's action."""


PolicyLoss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], PolicyLosses]
"""Takes logp, proximal logp and advantages, [T, N] each."""


@dataclass(frozen=True)
class Coefficients:
    """The weights of a loss's terms; that of the policy loss is 1."""

    value_loss: float
    entropy: float
    uniform_kl: float


class PolicyGradientLoss:
    """A minibatch's loss, and its gradient with respect to the module's outputs in closed form.

    The loss is policy loss + value_loss coefficient * value loss + uniform_kl coefficient *
    KL(uniform || policy) - entropy coefficient * entropy, each a mean over the steps that LOSS_MASK
    selects. The last two keep the policy random (Pereyra et al. 2017, section 3.2: label smoothing
    and confidence penalty). The KL term pulls an action back with the same force however unlikely
    it is; the entropy bonus vanishes for an unlikely action.

    Autograd would record and run as many small operations again, and their overhead on the host
    takes longer than their arithmetic.
    """

    def __init__(
        self,
        batch: dict[str, Any],
        outputs: dict[str, Any],
        config: Any,
        coefficients: Coefficients,
        policy_loss: PolicyLoss,
        normalize: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None,
    ) -> None:
        """
        Args:
            batch: Columns [N, T + 1], see FragmentsToTrainBatch. The first pass adds PROXIMAL_LOGP
                for later passes.
            outputs: The module's outputs, [N * (T + 1), ...], row by row.
            config: RLlib's, with volley's own settings in learner_config_dict.
            normalize: Normalizes advantages, see RunningNormalizer; None leaves them as they are.
        """
        rows, slots = batch[FIRST].shape
        self._coefficients = coefficients
        self._outputs = (outputs[Columns.ACTION_DIST_INPUTS], outputs[Columns.VF_PREDS])
        self._mask = batch[Columns.LOSS_MASK]
        self._num_steps = self._mask.sum()
        self._actions = batch[Columns.ACTIONS].unsqueeze(-1)
        logits, values = (output.detach() for output in self._outputs)
        self._all_logp = torch.log_softmax(logits, dim=-1).view(rows, slots, -1)
        self._policy = self._all_logp.exp()
        values, mask = values.view(rows, slots).t(), self._mask.t()[:-1]
        logp = self._all_logp.gather(-1, self._actions).squeeze(-1).t()[:-1]
        self._log_rhos = logp - batch[Columns.ACTION_LOGP].t()[:-1]
        self._targets, advantages = vtrace(
            values=values,
            rewards=batch[Columns.REWARDS].t()[:-1],
            discounts=config.gamma * (~batch[Columns.TERMINATEDS].t()[:-1]).float(),
            log_rhos=self._log_rhos,
            mask=mask,
            lambda_=config.learner_config_dict["lambda_"],
            clip_rho=config.vtrace_clip_rho_threshold,
            clip_pg_rho=config.vtrace_clip_pg_rho_threshold,
        )
        if normalize is not None:
            advantages = normalize(advantages, mask)
        self._errors = values[:-1] - self._targets
        self._policy_losses = policy_loss(logp, batch.setdefault(PROXIMAL_LOGP, logp), advantages)

    def backward(self) -> None:
        """Adds the gradient to the gradients of the module's parameters."""
        torch.autograd.backward(self._outputs, self.gradients())

    def gradients(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the gradients for the logits, [N * (T + 1), actions], and values, [N * (T + 1)].

        With the logits z, p = softmax(z) and the action a, the gradient of log p_a is 1_a - p, that
        of the entropy H is -p (log p + H), and that of KL(uniform || policy) is p - 1 / actions.
        """
        weights = self._mask / self._num_steps
        slopes = self._of_every_slot(self._policy_losses.slopes)[..., None]
        pull = self._coefficients.uniform_kl
        factors: torch.Tensor = pull - slopes
        if self._coefficients.entropy:
            logp_and_entropy = self._all_logp + self._entropies()[..., None]
            factors = factors + self._coefficients.entropy * logp_and_entropy
        logits = self._policy * factors - pull / self._policy.shape[-1]
        logits.scatter_add_(-1, self._actions, slopes)
        logits *= weights[..., None]
        values = self._coefficients.value_loss * weights * self._of_every_slot(self._errors)
        return logits.flatten(0, 1), values.flatten()

    def metrics(self) -> dict[str, torch.Tensor]:
        """Returns the loss and its terms, means over the steps that count, by metric name.

        `mean_kl_loss` estimates KL(env runner's policy || policy).
        """
        mask = self._mask.t()[:-1]
        policy_loss = masked_mean(self._policy_losses.losses, mask)
        value_loss = 0.5 * masked_mean(self._errors.square(), mask)
        entropy = masked_mean(self._entropies(), self._mask)
        num_actions = self._all_logp.shape[-1]
        uniform_kl = masked_mean(-self._all_logp.mean(-1) - math.log(num_actions), self._mask)
        return {
            TOTAL_LOSS: policy_loss
            + self._coefficients.value_loss * value_loss
            + self._coefficients.uniform_kl * uniform_kl
            - self._coefficients.entropy * entropy,
            "policy_loss": policy_loss,
            "vf_loss": value_loss,
            "vf_explained_var": explained_variance(self._targets, self._errors, mask),
            ENTROPY_KEY: entropy,
            "mean_kl_loss": -masked_mean(self._log_rhos, mask),
        }

    def _entropies(self) -> torch.Tensor:
        """Returns the policy's entropy in each slot, [N, T + 1]."""
        return -(self._policy * self._all_logp).sum(-1)

    def _of_every_slot(self, steps: torch.Tensor) -> torch.Tensor:
        """Maps [T, N] to [N, T + 1], with 0 where LOSS_MASK is False, whatever the value there."""
        padded = torch.nn.functional.pad(steps.t(), (0, 1))
        return torch.where(self._mask, padded, 0.0)


def policy_gradient(logp: torch.Tensor, advantages: torch.Tensor) -> PolicyLosses:
    """Returns each step's V-trace policy-gradient loss (IMPALA, section 4.2); all are [T, N]."""
    return PolicyLosses(losses=-logp * advantages, slopes=-advantages)


def clipped_surrogate(
    logp: torch.Tensor, proximal_logp: torch.Tensor, advantages: torch.Tensor, clip: float
) -> PolicyLosses:
    """Returns each step's clipped surrogate loss (Schulman et al. 2017, equation 7).

    The ratio is to the learner's own policy before the minibatch's passes (the decoupled objective
    of Hilton et al. 2021, section 3), and V-trace's rho, in the advantages, is to the env runner's:
    of the current policy, computed again in each pass, where Hilton et al. keep that of the first.
    A ratio to the env runner's policy, some updates old, would already be clipped before the first
    pass.
    """
    ratios = (logp - proximal_logp).exp()
    gains = ratios * advantages
    clipped = ratios.clamp(1.0 - clip, 1.0 + clip) * advantages
    return PolicyLosses(
        losses=-torch.min(gains, clipped), slopes=torch.where(gains <= clipped, -gains, 0.0)
    )


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
