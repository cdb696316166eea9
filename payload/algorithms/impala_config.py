"""RLlib's config of IMPALA, APPO and PQN: the fast path of Atari games, or RLlib's standard one."""

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule

from payload.algorithms.image_networks import PPOImageCatalog
from payload.environments.atari import AtariSettings
from payload.environments.own_class import own_class
from payload.experiment.fragment_settings import FragmentSettings
from payload.experiment.impala_settings import ImpalaSettings
from payload.experiment.settings import Experiment
from payload.experiment.settings_of_every_algorithm import LSTM
from payload.impala.atari_env_runner import AtariEnvRunner
from payload.impala.epsilon_greedy import EpsilonGreedyAPPOModule, EpsilonGreedyPPOModule
from payload.impala.impala_algorithm import VolleyAPPO, VolleyIMPALA
from payload.impala.learner_errors import WatchedAPPOLearner, WatchedIMPALALearner
from payload.impala.module import AtariModule, network_of
from payload.impala.policy_gradient_learners import SurrogateLearner, VTraceLearner
from payload.impala.q_learner import QLearner
from payload.impala.schedule import schedule
from payload.impala.train_batch import FragmentsToTrainBatch

ALGORITHM_CLASSES = {"IMPALA": VolleyIMPALA, "APPO": VolleyAPPO, "PQN": VolleyIMPALA}
LEARNER_CLASSES = {"IMPALA": VTraceLearner, "APPO": SurrogateLearner, "PQN": QLearner}
LEARNER_SETTINGS = (
    *("num_epochs", "minibatch_size", "replay_proportion", "replay_buffer_num_slots", "lambda_"),
    *("uniform_kl_coeff", "uniform_kl_coeff_at_goal", "normalize_advantages"),
    "end_return_at_lost_life",
)
"""Settings that RLlib's config lacks."""

LAYERS = ("fcnet_hiddens", "fcnet_activation", "conv_filters", "vf_share_layers")

DDP = {"forward_sync_buffers": False, "gradient_as_bucket_view": True, "static_graph": True}
"""How several learners average gradients. torch would send the buffers before each gradient step,
but the only buffers are pixel statistics, which every learner has."""


def impala_config(
    experiment: Experiment, settings: FragmentSettings, game: AtariSettings | None
) -> AlgorithmConfig:
    """Returns RLlib's config with the settings that only IMPALA, APPO and PQN have."""
    # RLlib has no PQN; volley's differs from IMPALA in its learner.
    config = APPOConfig() if experiment.run == "APPO" else IMPALAConfig()
    config.algo_class = ALGORITHM_CLASSES[experiment.run]
    config.env_runners(
        rollout_fragment_length=settings.rollout_fragment_length,
        max_requests_in_flight_per_env_runner=settings.max_requests_in_flight_per_env_runner,
        use_env_runner_state_server=False,  # VolleyIMPALA starts its own.
    )
    config.training(
        lr=schedule(settings.lr),
        gamma=settings.gamma,
        grad_clip=settings.grad_clip,
        grad_clip_by="global_norm",
        broadcast_interval=settings.broadcast_interval,
        # 0 would poll without pause and take a core from the env runners.
        timeout_s_sampler_manager=0.05,
    )
    if experiment.run != "APPO":
        config.training(learner_queue_size=settings.learner_queue_size)
    if isinstance(settings, ImpalaSettings):
        _policy_gradient(config, experiment, settings, game)
    else:
        config.training(entropy_coeff=0.0)  # Its metric; the loss has no such term.
    if game is not None:
        _fast_path(config, experiment, settings, game)
    elif isinstance(settings, ImpalaSettings):
        _standard_path(config, experiment, settings)
    return config


def _policy_gradient(
    config: AlgorithmConfig,
    experiment: Experiment,
    settings: ImpalaSettings,
    game: AtariSettings | None,
) -> None:
    config.training(
        vf_loss_coeff=settings.vf_loss_coeff,
        entropy_coeff=schedule(settings.entropy_coeff),
        vtrace_clip_rho_threshold=settings.vtrace_clip_rho_threshold,
        vtrace_clip_pg_rho_threshold=settings.vtrace_clip_pg_rho_threshold,
    )
    if experiment.run == "APPO":
        given = {name: getattr(settings, name) for name in ("kl_coeff", "kl_target")}
        config.training(**{name: value for name, value in given.items() if value is not None})
        # APPO has its own settings for the queue: APPOConfig refuses learner_queue_size.
        config.training(
            clip_param=settings.clip_param,
            use_kl_loss=settings.use_kl_loss and game is None,
            use_circular_buffer=False,
            simple_queue_size=settings.learner_queue_size,
        )


def _fast_path(
    config: AlgorithmConfig, experiment: Experiment, settings: FragmentSettings, game: AtariSettings
) -> None:
    clip_rewards = settings.clip_rewards
    config.environment(experiment.env, env_config=game.env_config())
    config.env_runners(env_runner_cls=AtariEnvRunner)
    config.learners(
        learner_class=LEARNER_CLASSES[experiment.run],
        learner_config_dict={
            name: getattr(settings, name) for name in LEARNER_SETTINGS if hasattr(settings, name)
        },
        learner_connector=lambda observation_space, action_space: FragmentsToTrainBatch(
            observation_space, action_space, clip_rewards=clip_rewards
        ),
        add_default_connectors_to_learner_pipeline=False,
    )
    config.framework(torch_ddp_kwargs=DDP)
    config.rl_module(
        rl_module_spec=RLModuleSpec(
            module_class=AtariModule,
            model_config={**network_of(settings), "epsilon": schedule(settings.epsilon)},
        )
    )


def _standard_path(
    config: AlgorithmConfig, experiment: Experiment, settings: ImpalaSettings
) -> None:
    spec = config.get_default_rl_module_spec()
    assert isinstance(spec, RLModuleSpec)
    spec.catalog_class = PPOImageCatalog
    if settings.epsilon is not None:
        spec.module_class = {"IMPALA": EpsilonGreedyPPOModule, "APPO": EpsilonGreedyAPPOModule}[
            experiment.run
        ]
    layers = {name: getattr(settings, name) for name in LAYERS}
    model_config = {name: value for name, value in layers.items() if value is not None}
    model_config |= {name: getattr(settings, name) for name in LSTM}
    model_config["epsilon"] = schedule(settings.epsilon)
    if settings.module is not None:
        spec.module_class = own_class("config.module", settings.module, TorchRLModule)
        model_config |= settings.module_config
    config.rl_module(rl_module_spec=spec, model_config=model_config)
    config.learners(
        learner_class={"IMPALA": WatchedIMPALALearner, "APPO": WatchedAPPOLearner}[experiment.run]
    )
    config.training(num_epochs=settings.num_epochs, minibatch_size=settings.minibatch_size)
