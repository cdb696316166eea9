"""Builds RLlib's config of PPO, DQN or SAC from an experiment."""

from typing import Any

from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.dqn.dqn_catalog import DQNCatalog
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.algorithms.sac.sac_catalog import SACCatalog
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule

from payload.algorithms.image_networks import ImageCatalog, PPOImageCatalog
from payload.environments.own_class import own_class
from payload.experiment.ppo_dqn_sac_settings import PPOSettings, ReplaySettings, RLlibSettings
from payload.experiment.settings import Algorithm
from payload.experiment.settings_of_every_algorithm import LSTM, AlgorithmSettings
from payload.impala.epsilon_greedy import EpsilonGreedyPPOModule
from payload.impala.learner_errors import CheckpointErrors
from payload.impala.schedule import schedule


class CheckedPPOLearner(CheckpointErrors, PPOTorchLearner):
    """RLlib's own learner, with checkpoint errors kept."""


class CheckedDQNLearner(CheckpointErrors, DQNTorchLearner):
    """RLlib's own learner, with checkpoint errors kept."""


class CheckedSACLearner(CheckpointErrors, SACTorchLearner):
    """RLlib's own learner, with checkpoint errors kept."""


class DQNImageCatalog(ImageCatalog, DQNCatalog):
    """For DQN."""


class SACImageCatalog(ImageCatalog, SACCatalog):
    """For SAC."""


PARTS: dict[Algorithm, tuple[type[AlgorithmConfig], type[Any], type[Any]]] = {
    "PPO": (PPOConfig, CheckedPPOLearner, PPOImageCatalog),
    "DQN": (DQNConfig, CheckedDQNLearner, DQNImageCatalog),
    "SAC": (SACConfig, CheckedSACLearner, SACImageCatalog),
}
"""Config, learner and catalog of each algorithm."""
MODEL = {"fcnet_hiddens", "fcnet_activation", "conv_filters", "vf_share_layers"} | LSTM
"""Settings of RLlib's default networks."""
BUFFER = {"replay_buffer_capacity", "prioritized_replay_alpha", "prioritized_replay_beta"}
SCHEDULES = ("lr", "entropy_coeff", "epsilon", "actor_lr", "critic_lr", "alpha_lr")


def standard_config(run: Algorithm, settings: RLlibSettings) -> AlgorithmConfig:
    """Returns RLlib's config with the settings that only these algorithms have."""
    config_class, learner_class, catalog_class = PARTS[run]
    config = config_class()
    own = set(type(settings).model_fields) - set(AlgorithmSettings.model_fields) - MODEL - BUFFER
    own.discard("rollout_fragment_length")
    if run == "PPO":
        own.remove("epsilon")
    training = {
        name: schedule(value) if name in SCHEDULES else value
        for name in sorted(own)
        if (value := getattr(settings, name)) is not None
    }
    config.training(**training, gamma=settings.gamma, grad_clip_by="global_norm")
    if isinstance(settings, ReplaySettings):
        config.env_runners(rollout_fragment_length=settings.rollout_fragment_length or "auto")
        config.training(
            replay_buffer_config={
                "type": "PrioritizedEpisodeReplayBuffer",
                "capacity": settings.replay_buffer_capacity,
                "alpha": settings.prioritized_replay_alpha,
                "beta": settings.prioritized_replay_beta,
            }
        )
    config.learners(learner_class=learner_class)
    network = {
        name: value for name in MODEL if (value := getattr(settings, name, None)) is not None
    }
    spec = config.get_default_rl_module_spec()
    assert isinstance(spec, RLModuleSpec)
    spec.catalog_class = catalog_class
    if isinstance(settings, PPOSettings) and settings.epsilon is not None:
        spec.module_class = EpsilonGreedyPPOModule
        network["epsilon"] = schedule(settings.epsilon)
    if settings.module is not None:
        spec.module_class = own_class("config.module", settings.module, TorchRLModule)
        network |= settings.module_config
    config.rl_module(rl_module_spec=spec, model_config=network)
    return config
