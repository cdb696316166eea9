"""Atari games as one C++ vector environment; the only place that configures the emulator."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import ale_py
import gymnasium
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

gymnasium.register_envs(ale_py)


@dataclass(frozen=True)
class AtariSettings:
    """One game and its preprocessing, as in Machado et al. (2018) and Mnih et al. (2015).

    The values equal `gymnasium.wrappers.AtariPreprocessing` followed by
    `FrameStackObservation(padding_type="zero")`, so a policy plays the same on either.
    """

    game: str
    """ROM name, for example "pong"."""
    repeat_action_probability: float = 0.0
    """Probability of a sticky action. A NoFrameskip-v4 id has none."""
    image_size: int = 42
    """Height and width in pixels after the resize."""
    frame_stack: int = 4
    frame_skip: int = 4
    """Emulator frames per agent step; the last two are max-pooled."""
    noop_max: int = 30
    """At most this many no-op actions start an episode."""
    max_episode_frames: int = 108_000
    """An episode is truncated after this many emulator frames (30 minutes of play)."""

    def env_config(self) -> dict[str, Any]:
        """These settings as RLlib's `env_config`; `AtariSettings(**env_config)` reads it."""
        return asdict(self)


def atari_settings(env_id: str, image_size: int = 42) -> AtariSettings | None:
    """Returns the settings of an ALE environment's Gymnasium id, or None for any other id.

    An id whose observations are no images, or whose frame skip is random (Pong-v4),
    has no vector environment and gives None as well.

    Raises:
        gymnasium.error.Error: No such environment is registered.
    """
    spec = gymnasium.spec(env_id)
    kwargs = spec.kwargs
    if spec.entry_point != "ale_py.env:AtariEnv" or kwargs.get("obs_type", "rgb") == "ram":
        return None
    if kwargs.get("full_action_space") or kwargs.get("frameskip") not in (1, 4):
        return None
    return AtariSettings(
        game=kwargs["game"],
        repeat_action_probability=kwargs["repeat_action_probability"],
        image_size=image_size,
        max_episode_frames=kwargs["max_num_frames_per_episode"],
    )


def make_vector_env(settings: AtariSettings, num_envs: int, num_threads: int = 1) -> AtariVectorEnv:
    """Makes `num_envs` copies of a game that are stepped in one call.

    Rewards are the game's own. A finished episode restarts within the same step: the
    observation returned is then the first of the next episode, `info["final_obs"]` the
    last of the finished one.
    """
    return AtariVectorEnv(
        settings.game,
        num_envs,
        num_threads=num_threads,
        autoreset_mode=AutoresetMode.SAME_STEP,
        max_num_frames_per_episode=settings.max_episode_frames,
        repeat_action_probability=settings.repeat_action_probability,
        img_height=settings.image_size,
        img_width=settings.image_size,
        stack_num=settings.frame_stack,
        frameskip=settings.frame_skip,
        noop_max=settings.noop_max,
        # Gymnasium's AtariPreprocessing presses no button for the player.
        use_fire_reset=False,
        # The learner clips rewards and ends returns at a lost life; the game does not.
        reward_clipping=False,
        episodic_life=False,
    )
