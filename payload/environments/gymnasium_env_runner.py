"""RLlib's env runner, on environments as the policy sees them."""

from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers.vector import DictInfoToList
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

from payload.environments.array_sampling import ArraySampler, Policy, can_sample
from payload.environments.atari import AtariSettings, make_vector_env
from payload.environments.checked_vector import CheckedVector, log_episodes
from payload.environments.environment_faults import Recovering, StepTimeout
from payload.environments.environment_seeds import seeds_at_start
from payload.environments.info_metrics import InfoMetrics
from payload.environments.make_env import EnvironmentSettings, make_vector
from payload.environments.observation_filter import (
    FilteredObservations,
    ObservationStatistics,
    StatisticsConnector,
)
from payload.environments.policy_observation import PolicyObservationVector
from payload.episode_length import MAX_EPISODE_STEPS

WORKER_INDEX = "worker_index"
"""An argument of this name in env_config is replaced by the env runner's number, as RLlib counts
them: a port or a seed per env runner can be computed from it."""
EVALUATES_FROM = 1000
"""Added for env runners that evaluate: RLlib counts them from 1 too."""
STEPS_AT_ONCE = 32
"""Steps of each environment between two checks that all episodes are complete."""


class GymnasiumEnvRunner(Recovering):
    """Samples episodes from any Gymnasium environment.

    The driver's own env runner makes its environments on the first call of `sample`: it samples
    only if it is the only one, and the driver may have no display for a simulator.
    """

    env: DictInfoToList | None

    def __init__(self, **kwargs: Any) -> None:
        self._watched: CheckedVector | None = None
        super().__init__(**kwargs)
        if self.observation_statistics is not None:
            self._env_to_module.prepend(StatisticsConnector(self.observation_statistics))

    def sample(self, *, num_episodes: int | None = None, **kwargs: Any) -> Any:
        """Samples steps, or plays `num_episodes`; see RLlib's own for the arguments."""
        if self.env is None:
            self.make_env()
        if self._needs_initial_reset and (seeds := seeds_at_start(self)) is not None:
            self._seed = int(seeds[0])  # A vector counts up from it.
        with self._timeout.watch():
            if num_episodes is not None:
                return self._play(num_episodes, explore=kwargs.get("explore"))
            episodes = super().sample(**kwargs)
        # Schedules depend on it. The driver sometimes sends its own count, of all env runners.
        steps = sum(len(episode) for episode in episodes)
        self.num_env_steps_sampled_lifetime += steps * max(1, self.config.num_env_runners)
        return episodes

    def _play(self, num_episodes: int, explore: bool | None) -> list[Any]:
        """Plays each environment's share from a fresh start, so that short ones are not favoured.

        RLlib's own env runner takes the first that end. Only the episodes' metrics are kept, and of
        episodes longer than MAX_EPISODE_STEPS nothing.
        """
        watched = self._watched
        assert watched is not None
        share, rest = divmod(num_episodes, self.num_envs)
        watched.wanted = share + (np.arange(self.num_envs) < rest)
        most = int(watched.wanted.max()) * MAX_EPISODE_STEPS
        for played in range(0, most, STEPS_AT_ONCE):
            if not watched.wanted.any():
                break
            steps = STEPS_AT_ONCE * self.num_envs
            super().sample(num_timesteps=steps, explore=explore, force_reset=played == 0)
        watched.wanted = None
        self._needs_initial_reset = True
        return []

    def _sample(
        self,
        *,
        num_timesteps: int | None = None,
        explore: bool,
        force_reset: bool = False,
        **kwargs: Any,
    ) -> list[SingleAgentEpisode]:
        """Samples steps as arrays where it can, and as RLlib's own otherwise."""
        assert self.env is not None
        if num_timesteps is None or not can_sample(self.module, self.env):
            one_by_one: list[SingleAgentEpisode] = super()._sample(
                num_timesteps=num_timesteps,
                explore=explore,
                force_reset=force_reset,
                **kwargs,
            )
            return one_by_one
        if force_reset or self._needs_initial_reset:
            self._sampler.reset(self._seed if self._needs_initial_reset else None)
            self._needs_initial_reset = False
        policy = Policy(
            self.module,
            self.env.single_action_space,
            explore,
            self.num_env_steps_sampled_lifetime,
            max(1, self.config.num_env_runners),
            self._weights_seq_no,
        )
        episodes = self._sampler.sample(policy, num_timesteps)
        steps = sum(map(len, episodes))
        self._log_env_steps(metric=self._metrics_num_env_steps_sampled, num_steps=steps)
        self._increase_sampled_metrics(steps, 0)
        return episodes

    def _increase_sampled_metrics(self, num_steps: int, num_episodes_completed: int) -> Any:
        """Logs steps; get_metrics counts the episodes."""
        return super()._increase_sampled_metrics(num_steps, 0)

    def make_env(self) -> None:
        """Makes the environments, and closes the previous ones."""
        self.times_made += 1
        self.num_envs = self.config.num_envs_per_env_runner
        with self._timeout.watch():
            self._timeout.renew()
            if self.env is not None:
                with suppress(Exception):  # A failed environment may fail again.
                    self.env.close()
            self._watched = self._make_vector()
        seen: VectorEnv[Any, Any, Any] = self._watched
        if self.observation_statistics is not None:
            seen = FilteredObservations(seen, self.observation_statistics)
        self._sampler = ArraySampler(seen)
        self.env = DictInfoToList(seen)
        self._needs_initial_reset = True

    @cached_property
    def _settings(self) -> EnvironmentSettings:
        return EnvironmentSettings(**self.config.env_config)

    @cached_property
    def observation_statistics(self) -> ObservationStatistics | None:
        """What the filter of observations knows; None without a filter."""
        if not self._settings.observation_filter:
            return None
        return ObservationStatistics(learns=not self.config.in_evaluation)

    @cached_property
    def _timeout(self) -> StepTimeout:
        return StepTimeout(self._settings.step_timeout_s, may_exit=self.worker_index > 0)

    def _make_vector(self) -> CheckedVector:
        kwargs = dict(self._settings.kwargs)
        if WORKER_INDEX in kwargs:
            first = EVALUATES_FROM if self.config.in_evaluation else 0
            kwargs[WORKER_INDEX] = first + self.worker_index
        env = make_vector(
            self.config.env,
            kwargs,
            self.num_envs,
            self._info_metrics,
            self._settings.wrappers,
            self._settings.keeps_dict,
            num_threads=max(1, int(self.config.num_cpus_per_env_runner)),
        )
        return CheckedVector(
            env,
            check_space=self._settings.check_space,
            timeout=self._timeout,
            info_metrics=self._info_metrics,
            reward_scale=self._settings.reward_scale,
        )

    @cached_property
    def _info_metrics(self) -> InfoMetrics:
        return InfoMetrics(tuple(self._settings.info_metrics))

    def numbers_in_info(self) -> set[str]:
        """Returns the names of all numbers that `info` had at the ends of episodes."""
        return self._info_metrics.seen

    def get_metrics(self) -> Any:
        """Returns the metrics since the last call, every finished episode among them."""
        if self._watched is not None:
            window = self.config.metrics_num_episodes_for_smoothing
            log_episodes(self.metrics, self._watched.finished, window)
            self._watched.finished.clear()
        # RLlib would count them too, and with clipped rewards.
        self._done_episodes_for_metrics.clear()
        self._ongoing_episodes_for_metrics.clear()
        return self.metrics.reduce()


class AtariGameEnvRunner(GymnasiumEnvRunner):
    """Samples episodes from an Atari game, whose copies are stepped in one call."""

    def _make_vector(self) -> CheckedVector:
        kwargs = self._settings.kwargs
        game = AtariSettings(**kwargs["game"])
        threads = max(1, int(self.config.num_cpus_per_env_runner))
        env = make_vector_env(game, self.num_envs, threads, autoreset=AutoresetMode.NEXT_STEP)
        return CheckedVector(
            PolicyObservationVector(env), clip_rewards=kwargs["clip_rewards"], timeout=self._timeout
        )
