"""Plays a checkpoint's policy: mean and deviation over episodes, and a video; needs no cluster."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule

from payload.errors import UserError
from payload.experiment.settings import Experiment
from payload.impala.atari import AtariSettings, game_of, make_vector_env
from payload.run.checkpoints import Checkpoint

FRAMES_PER_SECOND = 30
"""Twice the game's own speed: one picture per environment step of four frames."""
MAX_VIDEO_STEPS = 3_600
"""Two minutes: a policy that never serves would play for half an hour."""


class Evaluation(NamedTuple):
    """Returns of complete episodes, in the order in which their environments finished."""

    returns: list[float]
    lengths: list[int]

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def deviation(self) -> float:
        return float(np.std(self.returns))


def evaluate(
    checkpoint: Checkpoint, episodes: int, explore: bool = False, seed: int | None = None
) -> Evaluation:
    """Plays `episodes` complete episodes with the checkpoint's policy.

    Args:
        explore: Sample from the policy, as training does, instead of the likeliest action.
    """
    experiment = checkpoint.experiment()
    policy = Policy(checkpoint, explore, seed)
    game = game_of(experiment)
    if game is None:
        environment = gymnasium_env(experiment)
        played = [play_episode(environment, policy, _seed(seed, i)) for i in range(episodes)]
        environment.close()
        return Evaluation([p[0] for p in played], [p[1] for p in played])
    return play_vector(game, policy, episodes, seed)


class Policy:
    """A checkpoint's policy: observations [N, ...] to actions [N]."""

    def __init__(self, checkpoint: Checkpoint, explore: bool, seed: int | None = None) -> None:
        """
        Raises:
            UserError: The checkpoint is truncated, or of another version's network.
        """
        try:
            self.module = RLModule.from_checkpoint(checkpoint.module)
        except Exception as error:  # A truncated file raises many types.
            reason = " ".join(str(error).split())
            raise UserError(
                f"{checkpoint.path}: cannot be read ({reason}); give one that is whole and that "
                "this version has written"
            ) from None
        self.explore = explore
        self._generator = torch.Generator().manual_seed(0 if seed is None else seed)

    @torch.inference_mode()
    def __call__(self, observations: npt.NDArray[Any]) -> npt.NDArray[Any]:
        outputs = self.module.forward_inference({Columns.OBS: torch.from_numpy(observations)})
        inputs = outputs[Columns.ACTION_DIST_INPUTS]
        if not isinstance(self.module.action_space, gymnasium.spaces.Discrete):
            distribution = self.module.get_inference_action_dist_cls().from_logits(inputs)
            if not self.explore:
                distribution = distribution.to_deterministic()
            return np.asarray(distribution.sample())
        if not self.explore:
            return np.asarray(inputs.argmax(-1))
        probabilities = torch.softmax(inputs, -1)
        return np.asarray(torch.multinomial(probabilities, 1, generator=self._generator)[:, 0])


def play_vector(
    game: AtariSettings, policy: Policy, episodes: int, seed: int | None = None
) -> Evaluation:
    """Plays one episode in each of `episodes` copies of the game at once.

    One episode each, so that short episodes do not count more often than long ones.
    """
    env = make_vector_env(game, episodes, num_threads=os.cpu_count() or 1)
    observations, _ = env.reset(seed=seed)
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    running = np.ones(episodes, np.bool_)
    while running.any():
        observations, rewards, terminated, truncated, _ = env.step(policy(observations))
        returns += rewards * running
        lengths += running
        running &= ~(terminated | truncated)
    env.close()
    return Evaluation(returns.tolist(), lengths.tolist())


def gymnasium_env(experiment: Experiment, render: bool = False) -> gymnasium.Env[Any, Any]:
    """Makes the environment through Gymnasium's own wrappers, preprocessed as in training."""
    game = game_of(experiment)
    mode = "rgb_array" if render else None
    if game is None:
        return gymnasium.make(experiment.env, render_mode=mode, **experiment.config.env_config)
    env = gymnasium.make(experiment.env, render_mode=mode, frameskip=1)
    size = (game.image_size, game.image_size)
    env = AtariPreprocessing(env, noop_max=game.noop_max, frame_skip=4, screen_size=size)
    return FrameStackObservation(env, game.frame_stack, padding_type="zero")


def play_episode(
    env: gymnasium.Env[Any, Any], policy: Policy, seed: int | None = None
) -> tuple[float, int]:
    """Plays one episode; returns its return and its length in environment steps."""
    total, length = 0.0, 0
    for reward in _rewards(env, policy, seed):
        total, length = total + reward, length + 1
    return total, length


def record_video(checkpoint: Checkpoint, path: Path, seed: int = 0) -> tuple[float, int]:
    """Writes one episode as an mp4 that browsers play; returns its return and length."""
    import av

    env = gymnasium_env(checkpoint.experiment(), render=True)
    policy = Policy(checkpoint, explore=False)
    aside = path.with_name(f".{path.name}")
    total, length = 0.0, 0
    with av.open(str(aside), "w", format="mp4", options={"movflags": "faststart"}) as container:
        stream: Any = None
        for reward in _rewards(env, policy, seed):
            total, length = total + reward, length + 1
            picture = _even(np.asarray(env.render()))
            if stream is None:
                stream = container.add_stream("libx264", rate=FRAMES_PER_SECOND)
                stream.height, stream.width = picture.shape[:2]
                stream.pix_fmt = "yuv420p"
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            if length >= MAX_VIDEO_STEPS:
                break
        container.mux(stream.encode(None))
    aside.replace(path)
    env.close()
    return total, length


def _rewards(env: gymnasium.Env[Any, Any], policy: Policy, seed: int | None) -> Iterator[float]:
    """Steps an episode to its end."""
    observation, _ = env.reset(seed=seed)
    over = False
    while not over:
        action = policy(np.asarray(observation)[None])[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        yield float(reward)


def _even(picture: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Enlarges small pictures and cuts an odd row or column: yuv420p has no half pixels."""
    zoom = max(1, math.ceil(320 / picture.shape[1]))
    picture = picture.repeat(zoom, 0).repeat(zoom, 1)
    return np.ascontiguousarray(picture[: picture.shape[0] & ~1, : picture.shape[1] & ~1])


def _seed(seed: int | None, episode: int) -> int | None:
    return None if seed is None else seed + episode
