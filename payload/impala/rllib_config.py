"""From an experiment to RLlib's AlgorithmConfig: the fast path, or RLlib's standard one."""

from __future__ import annotations

from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from payload.experiment.settings import Experiment, Settings
from payload.impala.atari import AtariSettings, game_of
from payload.impala.connector import FragmentsToTrainBatch
from payload.impala.env_runner import AtariEnvRunner
from payload.impala.learner import SurrogateLearner, VTraceLearner
from payload.impala.module import AtariModule
from payload.impala.thread_watch import WatchedAPPOLearner, WatchedIMPALALearner


def algorithm_config(experiment: Experiment, settings: Settings) -> AlgorithmConfig:
    """Builds RLlib's config; `settings` is what `with_defaults` returned."""
    config = {"IMPALA": IMPALAConfig, "APPO": APPOConfig}[experiment.run]()
    config.env_runners(
        num_env_runners=settings.num_env_runners,
        num_envs_per_env_runner=settings.num_envs_per_env_runner,
        num_cpus_per_env_runner=settings.num_cpus_per_env_runner,
        rollout_fragment_length=settings.rollout_fragment_length,
        max_requests_in_flight_per_env_runner=settings.max_requests_in_flight_per_env_runner,
        explore=settings.explore,
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
        # 0 would poll without pause and take a core from the env runners.
        timeout_s_sampler_manager=0.05,
    )
    if experiment.run == "APPO":
        # Settings of its own stand for the queue: APPOConfig refuses learner_queue_size.
        config.training(
            clip_param=settings.clip_param,
            use_circular_buffer=False,
            simple_queue_size=settings.learner_queue_size,
        )
    else:
        config.training(learner_queue_size=settings.learner_queue_size)
    config.reporting(
        min_time_s_per_iteration=settings.min_time_s_per_iteration,
        metrics_num_episodes_for_smoothing=100,
    )
    config.debugging(seed=settings.seed)
    config.fault_tolerance(
        restart_failed_env_runners=True,
        # RLlib waits so long for every env runner that is away, before each training step: with
        # its own 30 s, one lost node brings all the others to a standstill.
        env_runner_health_probe_timeout_s=0.1,
    )
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
            "minibatch_size": settings.minibatch_size,
            "lambda_": settings.lambda_,
            "uniform_kl_coeff": settings.uniform_kl_coeff,
            "uniform_kl_coeff_at_goal": settings.uniform_kl_coeff_at_goal,
            "normalize_advantages": settings.normalize_advantages,
            "end_return_at_lost_life": settings.end_return_at_lost_life,
        },
        learner_connector=lambda observation_space, action_space: FragmentsToTrainBatch(
            observation_space, action_space, clip_rewards=clip_rewards
        ),
        add_default_connectors_to_learner_pipeline=False,
    )
    # VTraceLearner looks at its gradients itself.
    config.framework(torch_skip_nan_gradients=True)
    config.rl_module(
        rl_module_spec=RLModuleSpec(
            module_class=AtariModule, model_config={"fcnet_hidden": settings.fcnet_hidden}
        )
    )


def _standard_path(config: AlgorithmConfig, experiment: Experiment, settings: Settings) -> None:
    config.environment(experiment.env, env_config=settings.env_config)
    # Were all remote env runners down at once, IMPALA would sample on the local one.
    config.env_runners(create_env_on_local_worker=True)
    config.learners(
        learner_class={"IMPALA": WatchedIMPALALearner, "APPO": WatchedAPPOLearner}[experiment.run]
    )
    config.training(num_epochs=settings.num_epochs, minibatch_size=experiment.config.minibatch_size)


def _schedule(value: Any) -> Any:
    """RLlib wants a schedule as lists whose first step is 0."""
    if isinstance(value, int | float):
        return value
    points = [list(point) for point in value]
    return points if points[0][0] == 0 else [[0, points[0][1]], *points]
