"""Plays a checkpoint's policy: mean and deviation over episodes; needs no cluster."""

import os
from collections.abc import Generator
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from torch.utils._pytree import tree_map

from payload.environments.atari import AtariSettings, game_of, make_vector_env
from payload.environments.make_env import make_env
from payload.environments.policy_observation import PolicyObservationVector
from payload.environments.space_entries import policy_spaces
from payload.episode_length import MAX_EPISODE_STEPS
from payload.errors import UserError
from payload.experiment.fragment_settings import FragmentSettings
from payload.experiment.settings import Experiment
from payload.run.checkpoint_policy import Policy
from payload.run.checkpoints import Checkpoint


class Evaluation(NamedTuple):
    """Returns of episodes, in the order in which their environments finished."""

    returns: list[float]
    lengths: list[int]
    cut_off: int = 0
    """Episodes that were as long as is allowed and had not ended."""

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    @property
    def deviation(self) -> float:
        return float(np.std(self.returns))


def evaluate(
    checkpoint: Checkpoint,
    episodes: int,
    explore: bool = False,
    seed: int | None = None,
    max_episode_steps: int = MAX_EPISODE_STEPS,
) -> Evaluation:
    """Plays `episodes` complete episodes with the checkpoint's policy.

    Args:
        explore: Sample from the policy instead of taking the likeliest action.
        max_episode_steps: Where an episode is cut off; a game has a limit of its own.
    """
    experiment = checkpoint.experiment()
    policy = Policy(checkpoint, explore, seed)
    game = game_of(experiment)
    if game is None:
        # One for all: an X server resets when its last window is closed, and refuses the next.
        seeds = [None if seed is None else seed + episode for episode in range(episodes)]
        with closing(environment_of(experiment, policy)) as env:
            played = [
                list(islice(play(env, policy, episode_seed), max_episode_steps))
                for episode_seed in seeds
            ]
        return Evaluation(
            [sum(step.reward for step in steps) for steps in played],
            [len(steps) for steps in played],
            sum(not steps[-1].over for steps in played),
        )
    return _play_vector(experiment, game, policy, episodes, seed)


def _play_vector(
    experiment: Experiment, game: AtariSettings, policy: Policy, episodes: int, seed: int | None
) -> Evaluation:
    """Plays one episode in each of `episodes` copies of the game at once.

    One episode each, so that short episodes do not count more often than long ones.
    """
    env = make_games(experiment, game, episodes)
    observations, _ = env.reset(seed=seed)
    policy.start()
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    running = np.ones(episodes, np.bool_)
    while running.any():
        observations, rewards, terminated, truncated, _ = env.step(policy(observations))
        returns += rewards * running
        lengths += running
        running &= ~(terminated | truncated)
    env.close()
    return Evaluation(returns.tolist(), lengths.tolist())


class PlayedStep(NamedTuple):
    """A step of an episode, as people see it."""

    reward: float
    over: bool
    picture: npt.NDArray[Any]
    """[H, W, 3] RGB."""


Play = Generator[PlayedStep]


def play(
    env: gymnasium.Env[Any, Any], policy: Policy, seed: int | None, pictured: bool = False
) -> Play:
    """Plays an episode; its pictures are empty unless the environment was made to draw them."""
    observation, _ = env.reset(seed=seed)
    policy.start()
    over = False
    while not over:
        action = policy(tree_map(lambda part: np.asarray(part)[None], observation))[0]
        observation, reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        yield PlayedStep(float(reward), over, np.asarray(env.render() if pictured else None))


def environment_of(
    experiment: Experiment, policy: Policy, render_mode: str | None = None
) -> gymnasium.Env[Any, Any]:
    """Makes the environment of an experiment, other than an Atari game.

    Raises:
        UserError: It cannot be made, or is not the one that the policy was trained in.
    """
    config = experiment.config
    env = make_env(
        experiment.env, config.env_config, render_mode, config.wrappers, config.module is not None
    )
    today = policy_spaces(env.observation_space, env.action_space)
    if today != policy.spaces:
        env.close()
        raise UserError(
            f"env: {experiment.env}: now {today}, but when the policy was trained, {policy.spaces}"
        )
    return env


def make_games(
    experiment: Experiment, game: AtariSettings, num_envs: int
) -> VectorEnv[Any, Any, Any]:
    """Makes copies of a game as the algorithm's env runners see them."""
    threads = os.cpu_count() or 1
    env = make_vector_env(game, num_envs, threads, autoreset=AutoresetMode.NEXT_STEP)
    return env if isinstance(experiment.config, FragmentSettings) else PolicyObservationVector(env)
