"""From an experiment to RLlib's AlgorithmConfig: the fast path, or RLlib's standard one."""

from __future__ import annotations

from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from payload.errors import UserError, nearest
from payload.experiment import Experiment, Settings
from payload.impala.atari import AtariSettings, atari_settings
from payload.impala.connector import FragmentsToTrainBatch
from payload.impala.env_runner import AtariEnvRunner
from payload.impala.learner import SurrogateLearner, VTraceLearner
from payload.impala.module import AtariModule

FAST_PATH_ONLY = (
    "image_size",
    "frame_stack",
    "clip_rewards",
    "end_return_at_lost_life",
    "lambda_",
    "normalize_advantages",
    "fcnet_hidden",
)
"""Settings that RLlib's own env runner, learner and module do not have."""

ALGORITHM_DEFAULTS: dict[str, dict[str, Any]] = {
    "IMPALA": {"lr": 6e-4, "entropy_coeff": 0.01, "num_epochs": 1},
    "APPO": {"lr": 1e-3, "entropy_coeff": 0.008, "num_epochs": 3},
}


def resolve_settings(experiment: Experiment, num_cpus: int) -> Settings:
    """Fills in what the experiment leaves to the algorithm or to the cluster.

    Args:
        num_cpus: CPUs of the Ray cluster.

    Raises:
        UserError: More env runners and learners than the cluster has CPUs for.
    """
    settings = experiment.config
    learner_cpus = settings.num_learners if settings.num_gpus_per_learner == 0 else 0
    room = max(0, num_cpus - learner_cpus) // settings.num_cpus_per_env_runner
    filled: dict[str, Any] = {
        "num_env_runners": max(1, room),
        "train_batch_size_per_learner": settings.fragment_steps,
        **ALGORITHM_DEFAULTS[experiment.run],
    }
    filled = {key: value for key, value in filled.items() if getattr(settings, key) is None}
    settings = settings.model_copy(update=filled)
    assert settings.num_env_runners is not None
    if settings.num_env_runners > room:
        raise UserError(
            f"config.num_env_runners: {settings.num_env_runners} is more than the {room} that fit "
            f"on the cluster ({num_cpus} CPUs, {learner_cpus} of them for learners, "
            f"{settings.num_cpus_per_env_runner} for each env runner)"
        )
    return settings


def game_of(experiment: Experiment) -> AtariSettings | None:
    """Returns the game's settings where the fast path applies, None elsewhere.

    Raises:
        UserError: env_config overrides something that AtariSettings does not have.
    """
    game = atari_settings(experiment.env, experiment.config.image_size)
    if game is None:
        return None
    values = {**game.env_config(), "frame_stack": experiment.config.frame_stack}
    for key, value in experiment.config.env_config.items():
        if key not in values or key == "game":
            raise UserError(f"config.env_config.{key}: unknown key{nearest(key, values)}")
        if type(value) is not type(values[key]):
            raise UserError(
                f"config.env_config.{key}: {value!r} is no {type(values[key]).__name__}"
            )
        values[key] = value
    return AtariSettings(**values)


def ignored_on_standard_path(experiment: Experiment) -> list[str]:
    """Returns a line for each setting given that RLlib's standard env runner has no use for."""
    return [
        f"config.{key} is ignored: {experiment.env} is no Atari game and runs on RLlib's own path"
        for key in FAST_PATH_ONLY
        if key in experiment.config.model_fields_set
    ]


def algorithm_config(experiment: Experiment, settings: Settings) -> AlgorithmConfig:
    """Builds RLlib's config; `settings` is what `resolve_settings` returned."""
    config = {"IMPALA": IMPALAConfig, "APPO": APPOConfig}[experiment.run]()
    config.env_runners(
        num_env_runners=settings.num_env_runners,
        num_envs_per_env_runner=settings.num_envs_per_env_runner,
        num_cpus_per_env_runner=settings.num_cpus_per_env_runner,
        rollout_fragment_length=settings.rollout_fragment_length,
        max_requests_in_flight_per_env_runner=settings.max_requests_in_flight_per_env_runner,
        explore=settings.explore,
        # Were all remote env runners down at once, IMPALA would sample on the local one.
        create_env_on_local_worker=True,
    )
    config.learners(
        num_learners=settings.num_learners, num_gpus_per_learner=settings.num_gpus_per_learner
    )
    config.training(
        train_batch_size_per_learner=settings.train_batch_size_per_learner,
        lr=_schedule(settings.lr),
        gamma=settings.gamma,
        vf_loss_coeff=settings.vf_loss_coeff,
        entropy_coeff=_schedule(settings.entropy_coeff),
        grad_clip=settings.grad_clip,
        grad_clip_by="global_norm",
        vtrace_clip_rho_threshold=settings.vtrace_clip_rho_threshold,
        vtrace_clip_pg_rho_threshold=settings.vtrace_clip_pg_rho_threshold,
        broadcast_interval=settings.broadcast_interval,
        learner_queue_size=settings.learner_queue_size,
        # 0 would poll without pause and take a core from the env runners.
        timeout_s_sampler_manager=0.05,
    )
    if experiment.run == "APPO":
        config.training(clip_param=settings.clip_param)
    config.reporting(
        min_time_s_per_iteration=settings.min_time_s_per_iteration,
        metrics_num_episodes_for_smoothing=100,
    )
    config.debugging(seed=settings.seed)
    config.fault_tolerance(restart_failed_env_runners=True)
    game = game_of(experiment)
    if game is None:
        _standard_path(config, experiment, settings)
    else:
        _fast_path(config, experiment, settings, game)
    return config


def _fast_path(
    config: AlgorithmConfig, experiment: Experiment, settings: Settings, game: AtariSettings
) -> None:
    clip_rewards = settings.clip_rewards
    config.environment(experiment.env, env_config=game.env_config())
    config.env_runners(env_runner_cls=AtariEnvRunner)
    config.learners(
        learner_class={"IMPALA": VTraceLearner, "APPO": SurrogateLearner}[experiment.run],
        learner_config_dict={
            "num_epochs": settings.num_epochs,
            "minibatch_size": settings.minibatch_size or settings.train_batch_size_per_learner,
            "lambda_": settings.lambda_,
            "normalize_advantages": settings.normalize_advantages,
            "end_return_at_lost_life": settings.end_return_at_lost_life,
        },
        learner_connector=lambda observation_space, action_space: FragmentsToTrainBatch(
            observation_space, action_space, clip_rewards=clip_rewards
        ),
        add_default_connectors_to_learner_pipeline=False,
    )
    config.rl_module(
        rl_module_spec=RLModuleSpec(
            module_class=AtariModule, model_config={"fcnet_hidden": settings.fcnet_hidden}
        )
    )


def _standard_path(config: AlgorithmConfig, experiment: Experiment, settings: Settings) -> None:
    config.environment(experiment.env, env_config=settings.env_config)
    config.training(num_epochs=settings.num_epochs, minibatch_size=settings.minibatch_size)


def _schedule(value: Any) -> Any:
    """RLlib wants a schedule as lists whose first step is 0."""
    if isinstance(value, int | float):
        return value
    points = [list(point) for point in value]
    return points if points[0][0] == 0 else [[0, points[0][1]], *points]
