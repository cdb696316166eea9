"""Builds RLlib's AlgorithmConfig from an experiment, for every algorithm."""

import logging
from dataclasses import asdict
from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from payload.algorithms.impala_config import impala_config
from payload.algorithms.ppo_dqn_sac_config import standard_config
from payload.environments.atari import game_of
from payload.environments.gymnasium_env_runner import AtariGameEnvRunner, GymnasiumEnvRunner
from payload.environments.make_env import EnvironmentSettings
from payload.errors import UserError
from payload.experiment.fragment_settings import FragmentSettings
from payload.experiment.ppo_dqn_sac_settings import RLlibSettings
from payload.experiment.settings import Experiment
from payload.experiment.settings_of_every_algorithm import AlgorithmSettings

RESTART_DELAY_S = 5.0
"""Pause of an env runner that keeps failing, before it makes its environments again."""
SAMPLE_AT_MOST_S = 280.0
"""How long PPO waits for its env runners, below the time after which an iteration counts as hung.
RLlib's 60 s would throw away all that a slow environment samples."""
EVALUATION_AT_MOST_S = 1800.0
"""Time limit of one evaluation; a longer one counts as hung."""
EVALUATION_SEED = 1_000_003
"""Added to the seed, so that no evaluation episode starts like a training episode."""


def algorithm_config(experiment: Experiment, settings: AlgorithmSettings) -> AlgorithmConfig:
    """Builds RLlib's config; `settings` is what `with_defaults` returned.

    Raises:
        UserError: RLlib refuses two settings together.
    """
    game = game_of(experiment)
    if isinstance(settings, FragmentSettings):
        config = impala_config(experiment, settings, game)
    else:
        assert isinstance(settings, RLlibSettings)
        config = standard_config(experiment.run, settings)
    config.env_runners(
        num_env_runners=settings.num_env_runners,
        num_envs_per_env_runner=settings.num_envs_per_env_runner,
        num_cpus_per_env_runner=settings.num_cpus_per_env_runner,
        explore=settings.explore,
        sample_timeout_s=SAMPLE_AT_MOST_S,
    )
    if game is None or not isinstance(settings, FragmentSettings):
        if game is None:
            kwargs, env_runner_class = settings.env_config, GymnasiumEnvRunner
        else:
            kwargs = {"game": game.env_config(), "clip_rewards": settings.clip_rewards}
            env_runner_class = AtariGameEnvRunner
        environment = EnvironmentSettings(
            kwargs,
            settings.env_step_timeout_s,
            check_space=not settings.disable_env_checking,
            info_metrics=settings.info_metrics,
            wrappers=settings.wrappers,
            keeps_dict=settings.module is not None,
            reward_scale=settings.reward_scale,
            observation_filter=settings.observation_filter != "NoFilter",
        )
        config.environment(experiment.env, env_config=asdict(environment))
        config.env_runners(env_runner_cls=env_runner_class)
    config.learners(
        num_learners=settings.num_learners, num_gpus_per_learner=settings.num_gpus_per_learner
    )
    if settings.train_batch_size_per_learner is not None:
        config.training(train_batch_size_per_learner=settings.train_batch_size_per_learner)
    if settings.evaluation_interval is not None:
        _evaluate(config, settings)
    config.reporting(
        min_time_s_per_iteration=settings.min_time_s_per_iteration,
        metrics_num_episodes_for_smoothing=100,
    )
    config.debugging(seed=settings.seed)
    config.fault_tolerance(
        restart_failed_env_runners=True,
        delay_between_env_runner_restarts_s=RESTART_DELAY_S,
        # RLlib waits this long for every unreachable env runner before each training step: with its
        # default of 30 s, one lost node stalls all the others.
        env_runner_health_probe_timeout_s=0.1,
    )
    try:
        config.validate()
    except ValueError as error:
        raise UserError(f"config: {str(error).splitlines()[0]}") from error
    return config


def check_config(experiment: Experiment, settings: AlgorithmSettings) -> None:
    """Makes the config before a run has a log, and keeps RLlib's warnings from the terminal.

    Raises:
        UserError: RLlib refuses two settings together.
    """
    logging.disable(logging.WARNING)
    try:
        algorithm_config(experiment, settings)
    finally:
        logging.disable(logging.NOTSET)


def _evaluate(config: AlgorithmConfig, settings: AlgorithmSettings) -> None:
    """Configures evaluation of the weights that are saved after an iteration; training waits.

    With a seed, the episodes of all evaluations start alike.
    """
    env_runners = settings.evaluation_num_env_runners
    each = -(-settings.evaluation_duration // max(1, env_runners))
    overrides: dict[str, Any] = {
        "explore": False,
        "num_envs_per_env_runner": min(each, settings.num_envs_per_env_runner),
    }
    if settings.seed is not None:
        overrides["seed"] = settings.seed + EVALUATION_SEED
    config.evaluation(
        evaluation_interval=settings.evaluation_interval,
        evaluation_duration=settings.evaluation_duration,
        evaluation_duration_unit="episodes",
        evaluation_num_env_runners=env_runners,
        evaluation_sample_timeout_s=EVALUATION_AT_MOST_S,
        evaluation_config=overrides,
    )
