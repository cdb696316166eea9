"""RLlib's own IMPALA on Pong, as RLlib's example sets it up: what the trainer is compared with."""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.connectors.env_to_module.frame_stacking import FrameStackingEnvToModule
from ray.rllib.connectors.learner.frame_stacking import FrameStackingLearner
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
from ray.tune.registry import register_env

STOCK_ENV = "stock-pong"
FRAME_STACK = 4
IMAGE_SIZE = 64


def stock_config(env_runners: int) -> IMPALAConfig:
    """Builds the config of rllib/examples/algorithms/impala/pong_impala.py (ray-project/ray).

    Every setting is the example's (64x64 pixels, four stacked frames, 5 environments for
    each env runner) except two that its command line chooses for a machine: the number of env
    runners, and a local learner, because a remote one would take a core from them.
    Iterations of a second instead of ten only make the measured window exact.
    """
    register_env(STOCK_ENV, _make_env)
    config = IMPALAConfig()
    config.environment(
        STOCK_ENV,
        env_config={
            "frameskip": 1,
            "full_action_space": False,
            "repeat_action_probability": 0.0,
        },
        clip_rewards=True,
    )
    config.env_runners(
        num_env_runners=env_runners,
        num_envs_per_env_runner=5,
        env_to_module_connector=lambda *_: FrameStackingEnvToModule(num_frames=FRAME_STACK),
    )
    config.learners(num_learners=0)
    config.training(
        learner_connector=lambda *_: FrameStackingLearner(num_frames=FRAME_STACK),
        train_batch_size_per_learner=500,
        grad_clip=30.0,
        grad_clip_by="global_norm",
        lr=0.0009,
        vf_loss_coeff=1.0,
        entropy_coeff=[[0, 0.02], [3_000_000, 0.0]],
    )
    config.rl_module(
        model_config={
            "vf_share_layers": True,
            "conv_filters": [[16, 4, 2], [32, 4, 2], [64, 4, 2], [128, 4, 2]],
            "conv_activation": "relu",
            "post_fcnet_hiddens": [256],
        }
    )
    config.reporting(min_time_s_per_iteration=1.0)
    return config


def _make_env(env_config: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Pong-v5", render_mode="rgb_array", **env_config)
    wrapped: gymnasium.Env[Any, Any] = wrap_atari_for_new_api_stack(env, dim=IMAGE_SIZE)
    return wrapped
