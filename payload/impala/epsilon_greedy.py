"""Epsilon-greedy exploration of a policy gradient: epsilon * uniform + (1 - epsilon) * policy.

Learners weigh an action by its probability when it was taken: V-trace's rho, PPO's ratio. So the
log-probability that travels with an action is that of the mixture, not that of the policy.
"""

from typing import Any

import torch
from ray.rllib.algorithms.appo.torch.default_appo_torch_rl_module import DefaultAPPOTorchRLModule
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.torch import TorchRLModule

from payload.impala.schedule import value_at


def mixture_logp(logits: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Returns the log-probability of every action, [..., actions], from the policy's logits."""
    policy = torch.softmax(logits, dim=-1)
    return torch.lerp(policy, torch.full_like(policy, 1 / policy.shape[-1]), epsilon).log()


class EpsilonGreedy(TorchRLModule):
    """An RLlib module that takes a random action with probability model_config["epsilon"].

    ACTION_DIST_INPUTS stay the policy's own: PPO's KL divergence is between two policies.
    """

    def _forward_exploration(
        self, batch: dict[str, Any], *, t: int = 0, **kwargs: Any
    ) -> dict[str, Any]:
        """Returns RLlib's outputs with actions and their log-probabilities.

        Args:
            t: Environment steps that all env runners have sampled; RLlib's env runner passes it.
        """
        outputs: dict[str, Any] = super()._forward_exploration(batch, **kwargs)
        epsilon = value_at(self.model_config["epsilon"], t)
        logp = mixture_logp(outputs[Columns.ACTION_DIST_INPUTS], epsilon)
        mixture = torch.distributions.Categorical(logits=logp)
        actions = mixture.sample()
        return {
            **outputs,
            Columns.ACTIONS: actions,
            Columns.ACTION_LOGP: mixture.log_prob(actions),
        }


class EpsilonGreedyPPOModule(EpsilonGreedy, DefaultPPOTorchRLModule):
    """For PPO and IMPALA."""


class EpsilonGreedyAPPOModule(EpsilonGreedy, DefaultAPPOTorchRLModule):
    """For APPO."""
