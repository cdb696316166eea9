"""The policy-gradient learners: V-trace (IMPALA) and the clipped surrogate (APPO)."""

from queue import Queue
from typing import Any

import torch
from ray.rllib.algorithms.impala.impala import LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY
from ray.rllib.core import DEFAULT_MODULE_ID

from payload.impala.learner import FragmentLearner
from payload.impala.policy_gradient_loss import (
    Coefficients,
    PolicyGradientLoss,
    PolicyLosses,
    RunningNormalizer,
    clipped_surrogate,
    policy_gradient,
)
from payload.impala.schedule import annealed, near_goal, near_limit


class VTraceLearner(FragmentLearner):
    """IMPALA's update: one policy-gradient step per minibatch, weighted by V-trace advantages.

    `config.learner_config_dict` carries lambda_, normalize_advantages and uniform_kl_coeff too.
    """

    def build(self) -> None:
        super().build()
        self.normalize = RunningNormalizer(device=self._device)

    def loss_of(self, minibatch: dict[str, Any], outputs: dict[str, Any]) -> PolicyGradientLoss:
        normalize = self.config.learner_config_dict["normalize_advantages"]
        return PolicyGradientLoss(
            minibatch,
            outputs,
            self.config,
            self._coefficients(),
            self.policy_losses,
            self.normalize if normalize else None,
        )

    def settings_used(self) -> dict[str, float]:
        coefficients = self._coefficients()
        return {
            **super().settings_used(),
            LEARNER_RESULTS_CURR_ENTROPY_COEFF_KEY: coefficients.entropy,
            "uniform_kl_coeff": coefficients.uniform_kl,
        }

    def _coefficients(self) -> Coefficients:
        """Returns the coefficients of this update's loss."""
        settings = self.config.learner_config_dict
        entropy_coeff = self.entropy_coeff_schedulers_per_module[DEFAULT_MODULE_ID]
        return Coefficients(
            value_loss=self.config.vf_loss_coeff,
            entropy=entropy_coeff.get_current_value() * self._current.entropy_coeff_left,
            uniform_kl=annealed(
                settings["uniform_kl_coeff"],
                settings["uniform_kl_coeff_at_goal"],
                self.uniform_kl_annealed(),
            ),
        )

    def uniform_kl_annealed(self) -> float:
        """Returns how far uniform_kl_coeff is annealed, in [0, 1], as a goal or a limit nears."""
        return max(near_goal(self._current.progress), near_limit(self._current.used))

    def policy_losses(
        self, logp: torch.Tensor, proximal_logp: torch.Tensor, advantages: torch.Tensor
    ) -> PolicyLosses:
        """Returns the policy loss of each step; all are [T, N]."""
        return policy_gradient(logp, advantages)

    def loss_state(self) -> dict[str, Any]:
        return {**super().loss_state(), "normalizer": self.normalize.state()}

    def set_loss_state(self, state: dict[str, Any]) -> None:
        super().set_loss_state(state)
        self.normalize = RunningNormalizer(**state["normalizer"], device=self._device)


class SurrogateLearner(VTraceLearner):
    """APPO's update: PPO's clipped surrogate on V-trace advantages, several passes."""

    def build(self) -> None:
        # As in APPOLearner.build: IMPALALearner's own queue would not have APPO's size.
        self._learner_thread_in_queue: Queue[Any] = Queue(maxsize=self.config.simple_queue_size)
        super().build()

    def uniform_kl_annealed(self) -> float:
        """Returns the used share of the run, which also anneals lr, or progress**2 if larger.

        APPO's steps are clipped, so its policy may become deterministic earlier than IMPALA's. With
        progress**4 some runs on Pong stayed long at a return of 0 while the greedy policy had 15.
        """
        return max(self._current.used, self._current.progress**2)

    def policy_losses(
        self, logp: torch.Tensor, proximal_logp: torch.Tensor, advantages: torch.Tensor
    ) -> PolicyLosses:
        return clipped_surrogate(logp, proximal_logp, advantages, self.config.clip_param)
