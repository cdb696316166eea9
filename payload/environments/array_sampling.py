"""Samples steps of many environments as arrays, and cuts them into RLlib's episodes.

RLlib's own env runner handles each step of each environment by itself: its connectors collect
observations from episodes, and its episodes are lists of steps. Here a step is one call of the
module and one of the environments, and an episode is a slice of arrays.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import VectorEnv
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import WEIGHTS_SEQ_NO
from ray.rllib.utils.numpy import convert_to_numpy
from ray.rllib.utils.spaces.space_utils import unsquash_action

Array = npt.NDArray[Any]


def can_sample(module: RLModule, env: VectorEnv[Any, Any, Any]) -> bool:
    """Whether observations and actions are one array each, and the module has no memory."""
    return (
        not module.is_stateful()
        and isinstance(env.single_observation_space, Box)
        and isinstance(env.single_action_space, (Box, Discrete, MultiDiscrete))
    )


Step = tuple[Array, Array, Array, Array, Array, dict[str, Array]]
"""A step of N environments: the columns of a Rollout but for its observations, [N, ...] each."""


@dataclass(frozen=True)
class Rollout:
    """T steps of N environments; all arrays begin with [N, T]."""

    observations: Array
    """[N, T + 1, ...]."""
    actions: Array
    rewards: Array
    terminated: Array
    truncated: Array
    resets: Array
    """[N, T] bool: the environment was reset instead, and its action had no effect."""
    outputs: dict[str, Array]
    """The module's other outputs."""

    @classmethod
    def of(cls, observations: list[Array], steps: list[Step]) -> "Rollout":
        """Stacks T + 1 observations and T steps."""
        actions, rewards, terminated, truncated, resets, outputs = zip(*steps, strict=True)
        return cls(
            np.stack(observations, 1),
            np.stack(actions, 1),
            np.stack(rewards, 1),
            np.stack(terminated, 1),
            np.stack(truncated, 1),
            np.stack(resets, 1),
            {name: np.stack([each[name] for each in outputs], 1) for name in outputs[0]},
        )


@dataclass
class Ongoing:
    """The episode of one environment."""

    name: str
    length: int = 0
    """Steps that earlier samples had."""


class ArraySampler:
    """Samples from a vector environment that resets in the step after the end of an episode."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        self._env = env

    def reset(self, seed: int | None) -> None:
        """Resets all environments, which starts new episodes."""
        self._observations, _ = self._env.reset(seed=seed)
        self._over = np.zeros(self._env.num_envs, np.bool_)
        self._ongoing = [Ongoing(uuid4().hex) for _ in range(self._env.num_envs)]

    def sample(self, policy: "Policy", num_timesteps: int) -> list[SingleAgentEpisode]:
        """Samples at least `num_timesteps` steps, not counting resets, in episodes and parts."""
        observations = [self._observations]
        steps: list[Step] = []
        count = 0
        while count < num_timesteps:
            actions, outputs = policy(self._observations, count)
            self._observations, rewards, terminated, truncated, _ = self._env.step(
                policy.for_environment(actions)
            )
            observations.append(self._observations)
            # An environment may change its arrays in the next step.
            ends = terminated.copy(), truncated.copy()
            steps.append((actions, rewards, *ends, self._over, outputs))
            count += int((~self._over).sum())
            self._over = terminated | truncated
        return self._cut(Rollout.of(observations, steps)) if steps else []

    def _cut(self, rollout: Rollout) -> list[SingleAgentEpisode]:
        """Returns the episodes of a rollout, environment by environment."""
        episodes = []
        for env, resets in enumerate(rollout.resets):
            edges = [-1, *np.flatnonzero(resets).tolist(), len(resets)]
            for reset, end in pairwise(edges):
                if reset >= 0:
                    self._ongoing[env] = Ongoing(uuid4().hex)
                if end > reset + 1:
                    episodes.append(self._episode(rollout, env, slice(reset + 1, end)))
        return episodes

    def _episode(self, rollout: Rollout, env: int, part: slice) -> SingleAgentEpisode:
        ongoing, length = self._ongoing[env], part.stop - part.start
        episode = SingleAgentEpisode(
            ongoing.name,
            observations=rollout.observations[env, part.start : part.stop + 1],
            observation_space=self._env.single_observation_space,
            infos=[{}] * (length + 1),
            actions=rollout.actions[env, part],
            action_space=self._env.single_action_space,
            rewards=rollout.rewards[env, part],
            terminated=bool(rollout.terminated[env, part.stop - 1]),
            truncated=bool(rollout.truncated[env, part.stop - 1]),
            extra_model_outputs={name: out[env, part] for name, out in rollout.outputs.items()},
            t_started=ongoing.length,
            len_lookback_buffer=0,
        )
        ongoing.length += length
        return episode


class Policy:
    """What an RLlib module does with observations, as RLlib's own connectors would."""

    def __init__(
        self,
        module: RLModule,
        space: Any,
        explore: bool,
        env_steps: int,
        env_runners: int,
        weights_seq_no: int,
    ) -> None:
        """
        Args:
            space: That of an environment's actions.
            env_steps: Steps that all env runners have sampled, for a module's schedules.
            env_runners: How many sample at the same time.
        """
        self._module, self._space, self._explore = module, space, explore
        self._env_steps, self._env_runners = env_steps, env_runners
        self._weights_seq_no = weights_seq_no
        # RLlib's forward_exploration sets the mode of every layer at each step.
        module.eval()

    @torch.no_grad()
    def __call__(self, observations: Array, steps: int) -> tuple[Array, dict[str, Array]]:
        """Returns actions [N, ...] for observations [N, ...], and the module's other outputs.

        Args:
            steps: Steps that this env runner has sampled since `env_steps`.

        Raises:
            ValueError: An output of the policy is NaN.
        """
        batch = {Columns.OBS: torch.from_numpy(observations)}
        if self._explore:
            env_steps = self._env_steps + steps * self._env_runners
            outputs = dict(self._module._forward_exploration(batch, t=env_steps))
        else:
            outputs = dict(self._module._forward_inference(batch))
        if Columns.ACTIONS not in outputs:
            outputs.update(self._chosen(outputs[Columns.ACTION_DIST_INPUTS]))
        # Of a tensor, convert_to_numpy takes ten times as long.
        arrays = {
            name: output.numpy() if isinstance(output, torch.Tensor) else convert_to_numpy(output)
            for name, output in outputs.items()
        }
        arrays[WEIGHTS_SEQ_NO] = np.full(len(observations), self._weights_seq_no)
        return arrays.pop(Columns.ACTIONS), arrays

    def _chosen(self, inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns actions and their log-probabilities for the inputs of their distribution."""
        if not self._explore:
            distribution = self._module.get_inference_action_dist_cls().from_logits(inputs)
            actions = distribution.to_deterministic().sample()
            # As with RLlib's own env runner: the likeliest action is certain.
            return {Columns.ACTIONS: actions, Columns.ACTION_LOGP: torch.zeros(len(inputs))}
        of = self._module.get_exploration_action_dist_cls()
        if of is TorchCategorical:
            # The Gumbel-max trick: one pass, no distribution object per step.
            logp = torch.log_softmax(inputs, dim=-1)
            if logp.isnan().any():
                raise ValueError("the policy's logits are NaN")
            noise = torch.empty_like(logp).exponential_().log_()
            actions = (logp - noise).argmax(-1, keepdim=True)
            return {
                Columns.ACTIONS: actions[:, 0],
                Columns.ACTION_LOGP: logp.gather(-1, actions)[:, 0],
            }
        distribution = of.from_logits(inputs)
        actions = distribution.sample()
        return {Columns.ACTIONS: actions, Columns.ACTION_LOGP: distribution.logp(actions)}

    def for_environment(self, actions: Array) -> Array:
        """Returns a policy's actions as the environments take them, within their bounds."""
        if isinstance(self._space, Box):
            actions = unsquash_action(actions, self._space)
        return actions
