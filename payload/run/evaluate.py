"""Plays a checkpoint's policy: mean and deviation over episodes, and a video; needs no cluster."""

from __future__ import annotations

import math
import os
from collections.abc import Generator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.rl_module import RLModule

from payload.errors import UserError
from payload.experiment.settings import Experiment
from payload.impala.atari import AtariSettings, game_of, make_vector_env
from payload.run.checkpoints import Checkpoint

PICTURES_PER_S = 30
GAME_PICTURES_PER_S = 120
"""Twice an Atari game's own speed; its frame skip divides them."""
MAX_VIDEO_S = 120
"""A policy that never serves would play for half an hour."""


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
        played = [
            [reward for reward, _ in _play(experiment, policy, _seed(seed, episode))]
            for episode in range(episodes)
        ]
        return Evaluation([sum(rewards) for rewards in played], [len(r) for r in played])
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
        # Of this size it gains little from more, and loses much to whatever else the cores do.
        torch.set_num_threads(1)
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


def record_video(checkpoint: Checkpoint, path: Path, seed: int = 0) -> tuple[float, int]:
    """Writes one episode as an mp4 that browsers play; returns its return and length."""
    import av

    experiment = checkpoint.experiment()
    policy = Policy(checkpoint, explore=False)
    game = game_of(experiment)
    if game is None:
        plays, rate = _play(experiment, policy, seed, render_mode="rgb_array"), PICTURES_PER_S
    else:
        plays, rate = _play_game(game, policy, seed), max(1, GAME_PICTURES_PER_S // game.frame_skip)
    aside = path.with_name(f".{path.name}")
    total, length = 0.0, 0
    with (
        closing(plays),
        av.open(str(aside), "w", format="mp4", options={"movflags": "faststart"}) as container,
    ):
        stream: Any = None
        for reward, screen in islice(plays, MAX_VIDEO_S * rate):
            total, length = total + reward, length + 1
            picture = _even(screen)
            if stream is None:
                stream = container.add_stream("libx264", rate=rate)
                stream.height, stream.width = picture.shape[:2]
                stream.pix_fmt = "yuv420p"
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    aside.replace(path)
    return total, length


Play = Generator[tuple[float, npt.NDArray[Any]]]
"""Of each step of an episode, the reward and the picture, [H, W, 3] RGB."""


def _play_game(game: AtariSettings, policy: Policy, seed: int) -> Play:
    """Plays an episode twice in step: once for the policy's eyes, once for people's."""
    with (
        closing(make_vector_env(game, 1)) as env,
        closing(make_vector_env(game, 1, screen=True)) as screen,
    ):
        observations, _ = env.reset(seed=seed)
        screen.reset(seed=seed)
        over = False
        while not over:
            actions = policy(observations)
            observations, rewards, terminated, truncated, _ = env.step(actions)
            over = bool(terminated[0] | truncated[0])
            yield float(rewards[0]), screen.step(actions)[0][0, 0]


def _play(
    experiment: Experiment, policy: Policy, seed: int | None, render_mode: str | None = None
) -> Play:
    """Plays an episode of any other Gymnasium environment; a picture needs a render mode."""
    kwargs = experiment.config.env_config
    with closing(gymnasium.make(experiment.env, render_mode=render_mode, **kwargs)) as env:
        observation, _ = env.reset(seed=seed)
        over = False
        while not over:
            action = policy(np.asarray(observation)[None])[0]
            observation, reward, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            yield float(reward), np.asarray(env.render() if render_mode else None)


def _even(picture: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Enlarges small pictures and cuts an odd row or column: yuv420p has no half pixels."""
    zoom = max(1, math.ceil(320 / picture.shape[1]))
    picture = picture.repeat(zoom, 0).repeat(zoom, 1)
    return np.ascontiguousarray(picture[: picture.shape[0] & ~1, : picture.shape[1] & ~1])


def _seed(seed: int | None, episode: int) -> int | None:
    return None if seed is None else seed + episode
