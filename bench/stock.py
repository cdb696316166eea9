"""RLlib's own IMPALA on Pong, the baseline of the trainer.

It runs as RLlib's example sets it up, and with the emulator's vector environment.
"""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
import numpy as np
import numpy.typing as npt
from ale_py.vector_env import AtariVectorEnv
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from gymnasium.wrappers.vector import TransformObservation
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.connectors.env_to_module.frame_stacking import FrameStackingEnvToModule
from ray.rllib.connectors.learner.frame_stacking import FrameStackingLearner
from ray.rllib.env.wrappers.atari_wrappers import wrap_atari_for_new_api_stack
from ray.tune.registry import register_env

from payload.environments.atari import AtariSettings
from payload.impala.module import LAYERS

STOCK_ENV = "stock-pong"
VECTOR_ENV = "stock-vector-pong"
VECTOR_GAMES = 32
"""Games of an env runner in the vector environment: as many as the trainer's."""
FRAME_STACK = 4
IMAGE_SIZE = 64
MODEL = {
    "vf_share_layers": True,
    "conv_filters": [[16, 4, 2], [32, 4, 2], [64, 4, 2], [128, 4, 2]],
    "conv_activation": "relu",
    "post_fcnet_hiddens": [256],
}
VECTOR_IMAGE_SIZE = AtariSettings("pong").image_size
"""The trainer's."""


def vector_config(env_runners: int) -> IMPALAConfig:
    """Builds the example's config with ale-py's vector environment, which steps the games in C++.

    Image and layers are the trainer's: with the example's, of 15 times as many multiplications for
    each observation, RLlib takes twice the CPU time for each step.

    RLlib's own env runner accepts it through `gym_env_vectorize_mode`, but its convolutions do not
    accept bytes, and expect the channels last: with the environment as ale-py registers it, each
    env runner fails with "Input type (unsigned char) and bias type (float) should be the same".
    """
    register_env(VECTOR_ENV, _make_vector_env)
    config = stock_config(env_runners)
    config.environment(VECTOR_ENV, env_config={}, clip_rewards=True)
    config.env_runners(
        num_envs_per_env_runner=VECTOR_GAMES,
        gym_env_vectorize_mode="vector_entry_point",
    )
    filters = [list(layer) for layer in LAYERS["small"]]
    config.rl_module(model_config={**MODEL, "conv_filters": filters})
    return config


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
    config.rl_module(model_config=MODEL)
    config.reporting(min_time_s_per_iteration=1.0)
    return config


def _make_env(env_config: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Pong-v5", render_mode="rgb_array", **env_config)
    wrapped: gymnasium.Env[Any, Any] = wrap_atari_for_new_api_stack(env, dim=IMAGE_SIZE)
    return wrapped


def _make_vector_env(env_config: dict[str, Any]) -> VectorEnv[Any, Any, Any]:
    """Makes games with the example's preprocessing, [N, size, size, 1] in [-1, 1)."""
    num_envs = env_config["num_envs"]
    env = AtariVectorEnv(
        "pong",
        num_envs,
        img_height=VECTOR_IMAGE_SIZE,
        img_width=VECTOR_IMAGE_SIZE,
        stack_num=1,
        episodic_life=True,
        reward_clipping=False,
        num_threads=1,
    )
    shape = (VECTOR_IMAGE_SIZE, VECTOR_IMAGE_SIZE, 1)

    def normalized(images: Any) -> npt.NDArray[np.float32]:
        pixels: npt.NDArray[np.uint8] = images.reshape(num_envs, *shape)
        return pixels.astype(np.float32) / 128.0 - 1.0

    return TransformObservation(
        env,
        normalized,
        observation_space=Box(-1.0, 1.0, (num_envs, *shape), np.float32),
        single_observation_space=Box(-1.0, 1.0, shape, np.float32),
    )
