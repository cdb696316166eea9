"""The env runner: steps a vector of Atari games with batched inference."""

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import ray
import torch
from ale_py.vector_env import AtariVectorEnv
from ray.rllib.core.columns import Columns
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED, NUM_ENV_STEPS_SAMPLED_LIFETIME

from payload.environments.atari import AtariSettings, make_vector_env
from payload.environments.checked_vector import FinishedEpisode, log_episodes
from payload.environments.environment_faults import Recovering
from payload.environments.environment_seeds import seeds_at_start
from payload.impala.epsilon_greedy import mixture_logp
from payload.impala.rollout_fragment import RolloutFragment
from payload.impala.schedule import value_at

REWARDS_SAMPLED = "rewards_sampled"
"""Sum of the game's own rewards over the steps sampled: how well the current policy plays.
Returns are known only when an episode ends, and then for its whole length."""
RETURN_SO_FAR_MIN = "return_so_far_min"
RETURN_SO_FAR_MAX = "return_so_far_max"
"""Lowest and highest return so far of the games in progress."""


STEPS_AT_ONCE = 32
"""Steps of each game between two checks whether all episodes are complete."""


class AtariEnvRunner(Recovering):
    """Samples rollout fragments from one AtariVectorEnv.

    It replaces RLlib's SingleAgentEnvRunner and inherits its weight pulling, state,
    checkpointing and spaces. `sample()` returns a list of one RolloutFragment instead of a
    list of episodes; it uses no connectors of env runners: the module reads the emulator's
    uint8 frames directly.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._finished: list[FinishedEpisode] = []
        self._episodes_wanted: npt.NDArray[np.int64] | None = None
        self.env: AtariVectorEnv | None
        self._env_runner_state_server: Any
        self._server_answer: Any = None
        super().__init__(**kwargs)
        self._epsilon = self.module.model_config["epsilon"]
        # Each env runner has one core (or its share of one) to itself.
        torch.set_num_threads(1)

    def sample(self, **kwargs: Any) -> list[RolloutFragment]:
        """Samples one rollout fragment; see RLlib's SingleAgentEnvRunner for the arguments.

        The driver's own env runner makes its environment here, on the first call: it samples
        only if it is the only one, and loading the games takes seconds.
        """
        if self.env is None:
            self.make_env()
        server = self._env_runner_state_server
        if server is not None and not self._has_answered(server):
            # The server starts seconds after the env runners; meanwhile its state is also theirs.
            self._env_runner_state_server = None
        try:
            fragments: list[RolloutFragment] = super().sample(**kwargs)
        finally:
            self._env_runner_state_server = server
        return fragments

    def _has_answered(self, server: Any) -> bool:
        """Asks, without waiting, whether the EnvRunnerStateServer has started."""
        if self._server_answer is None:
            self._server_answer = server.get_version.remote()
        return bool(ray.wait([self._server_answer], timeout=0)[0])

    def make_env(self) -> None:
        """Makes the vector environment; its threads are the env runner's CPUs."""
        if self.env is not None:
            self.env.close()
        self.times_made += 1
        self.num_envs = self.config.num_envs_per_env_runner
        self.env = make_vector_env(
            AtariSettings(**self.config.env_config),
            self.num_envs,
            num_threads=max(1, int(self.config.num_cpus_per_env_runner)),
        )
        self._needs_initial_reset = True

    @property
    def _steps_of_all(self) -> int:
        """Environment steps of all env runners per step of each environment here."""
        return int(self.num_envs * max(1, self.config.num_env_runners))

    def get_metrics(self) -> Any:
        """Returns the metrics since the last call, every finished episode among them."""
        window = self.config.metrics_num_episodes_for_smoothing
        log_episodes(self.metrics, self._finished, window)
        self._finished.clear()
        return self.metrics.reduce()

    def _sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[RolloutFragment]:
        """Steps all environments for `num_timesteps` in total, or until `num_episodes` ended.

        With `num_episodes`, each environment plays its share from a fresh start and its
        later episodes do not count, so short episodes are not favoured; the fragments
        are dropped, since RLlib only reads the metrics of such a call.
        """
        if force_reset or num_episodes is not None or self._needs_initial_reset:
            self._reset()
        if num_episodes is None:
            assert num_timesteps is not None
            return [self._rollout(num_timesteps // self.num_envs, explore, random_actions)]
        share, rest = divmod(num_episodes, self.num_envs)
        self._episodes_wanted = np.full(self.num_envs, share) + (np.arange(self.num_envs) < rest)
        while self._episodes_wanted.any():
            self._rollout(STEPS_AT_ONCE, explore, random_actions)
        self._needs_initial_reset = True
        return []

    def _reset(self) -> None:
        seeds = seeds_at_start(self) if self._needs_initial_reset else None
        self._observations, infos = self._try_env_reset(seed=seeds)
        self._needs_initial_reset = False
        self._first = np.ones(self.num_envs, np.bool_)
        self._lives = infos["lives"].copy()
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._episodes_wanted = None
        initial = self.module.get_initial_state()
        self._state = {name: part.repeat(self.num_envs, 1) for name, part in initial.items()}

    def _rollout(self, num_steps: int, explore: bool, random_actions: bool) -> RolloutFragment:
        """Steps all environments `num_steps` times and logs it."""
        started = time.perf_counter()
        fragment = self._sample_fragment(num_steps, explore, random_actions)
        self._count_steps(fragment)
        # The driver's count of all env runners' steps comes with the weights.
        self.num_env_steps_sampled_lifetime += num_steps * self._steps_of_all
        self.metrics.log_value(RETURN_SO_FAR_MIN, float(self._returns.min()), reduce="min")
        self.metrics.log_value(RETURN_SO_FAR_MAX, float(self._returns.max()), reduce="max")
        self.metrics.log_value("rollout_timer", time.perf_counter() - started)
        return fragment

    def _count_steps(self, fragment: RolloutFragment) -> None:
        """Logs steps, under the names that RLlib's driver reads, and their rewards."""
        steps = len(fragment)
        self.metrics.log_value(REWARDS_SAMPLED, float(fragment.rewards.sum()), reduce="sum")
        self.metrics.log_value(NUM_ENV_STEPS_SAMPLED, steps, reduce="sum")
        self.metrics.log_value(
            NUM_ENV_STEPS_SAMPLED_LIFETIME, steps, reduce="lifetime_sum", with_throughput=True
        )

    def _sample_fragment(
        self, num_steps: int, explore: bool, random_actions: bool
    ) -> RolloutFragment:
        stack, *image = self._observations.shape[1:]
        frames = np.empty((stack - 1 + num_steps + 1, self.num_envs, *image), np.uint8)
        frames[: stack - 1] = self._observations[:, :-1].swapaxes(0, 1)
        first = np.empty((num_steps + 1, self.num_envs), np.bool_)
        actions = np.empty((num_steps, self.num_envs), np.uint8)
        action_logp, rewards = np.empty((2, num_steps, self.num_envs), np.float32)
        terminated, truncated = np.empty((2, num_steps, self.num_envs), np.bool_)
        state = np.stack([part.numpy() for part in self._state.values()]) if self._state else None
        for t in range(num_steps):
            frames[stack - 1 + t], first[t] = self._observations[:, -1], self._first
            actions[t], action_logp[t] = self._act(explore, random_actions, t)
            result = self._try_env_step(actions[t].astype(np.int64))
            rewards[t], terminated[t], truncated[t] = self._observe(*result)
        frames[-1], first[-1] = self._observations[:, -1], self._first
        return RolloutFragment(
            frames=frames,
            first=first,
            actions=actions,
            action_logp=action_logp,
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            weights_seq_no=self._weights_seq_no,
            state=state,
        )

    @torch.inference_mode()
    def _act(self, explore: bool, random_actions: bool, t: int) -> tuple[Any, Any]:
        """Returns actions [N] and their log-probabilities [N] for the current observations.

        Args:
            t: Steps of this fragment before this one.
        """
        assert self.env is not None
        if random_actions:
            num_actions = int(self.env.single_action_space.n)
            return np.random.randint(num_actions, size=self.num_envs), -np.log(num_actions)
        logits = self._logits()
        if explore:
            logits = logits / self.module.temperature
        if explore and self._epsilon is not None:
            position = self.num_env_steps_sampled_lifetime + t * self._steps_of_all
            logp = mixture_logp(logits, value_at(self._epsilon, position))
        else:
            logp = torch.log_softmax(logits, dim=-1)
        if explore:
            # The Gumbel-max trick: one pass, no torch.distributions object per step.
            actions = (logp - torch.empty_like(logp).exponential_().log_()).argmax(-1, True)
        else:
            actions = logp.argmax(-1, True)
        return actions[:, 0].numpy(), logp.gather(-1, actions)[:, 0].numpy()

    def _logits(self) -> torch.Tensor:
        """Returns the policy's, [N, actions]; moves its LSTM on by a step."""
        observations = torch.from_numpy(self._observations)
        # RLlib's forward_exploration sets the mode of every layer first, at each step.
        if not self._state:
            outputs = self.module._forward({Columns.OBS: observations})
            return outputs[Columns.ACTION_DIST_INPUTS]
        continues = torch.from_numpy(~self._first)[:, None]
        state = {name: part * continues for name, part in self._state.items()}
        batch = {Columns.OBS: observations[:, None], Columns.STATE_IN: state}
        outputs = self.module._forward(batch)
        self._state = outputs[Columns.STATE_OUT]
        return outputs[Columns.ACTION_DIST_INPUTS][:, 0]

    def _observe(
        self, observations: Any, rewards: Any, terminated: Any, truncated: Any, infos: Any
    ) -> tuple[Any, Any, Any]:
        """Processes a step's result; returns rewards, terminated and truncated for the learner."""
        self._observations = observations
        self._returns += rewards
        self._lengths += 1
        self._first = terminated | truncated
        for env in np.flatnonzero(self._first):
            self._finish_episode(int(env))
        if self.config.learner_config_dict["end_return_at_lost_life"]:
            terminated = terminated | (~self._first & (infos["lives"] < self._lives))
        self._lives = infos["lives"].copy()
        return rewards, terminated, truncated & ~terminated

    def _finish_episode(self, env: int) -> None:
        if self._episodes_wanted is None or self._episodes_wanted[env] > 0:
            self._finished.append(
                FinishedEpisode(int(self._lengths[env]), float(self._returns[env]), {})
            )
            if self._episodes_wanted is not None:
                self._episodes_wanted[env] -= 1
        self._returns[env], self._lengths[env] = 0.0, 0
