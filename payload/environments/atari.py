"""Atari games as one C++ vector environment; the only place that configures the emulator."""

from dataclasses import asdict, dataclass
from typing import Any

import ale_py
import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

from payload.environments.make_env import find_spec
from payload.episode_length import MAX_EPISODE_FRAMES
from payload.errors import UserError, nearest
from payload.experiment.ale_words import fields_of_game
from payload.experiment.fragment_settings import FragmentSettings
from payload.experiment.settings import Experiment

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
    """Height in pixels after the resize."""
    image_width: int = 42
    frame_stack: int = 4
    frame_skip: int = 4
    """Emulator frames per environment step; the last two are max-pooled."""
    noop_max: int = 30
    """At most this many no-op actions start an episode."""
    max_episode_frames: int = MAX_EPISODE_FRAMES
    """An episode is truncated after this many emulator frames (30 minutes of play)."""

    def env_config(self) -> dict[str, Any]:
        """These settings as RLlib's `env_config`; `AtariSettings(**env_config)` reads it."""
        return asdict(self)

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of an observation."""
        return self.image_size, self.image_width


def game_of(experiment: Experiment) -> AtariSettings | None:
    """Returns the game's settings if the fast path applies, None for any other environment.

    An id whose observations are not images, or whose frame skip is random (Pong-v4), has no vector
    environment and gives None as well.

    Raises:
        UserError: No such environment is registered, or AtariSettings lacks a key of env_config.
    """
    config = experiment.config
    # The import of another package, which may take any time, is the probe's.
    if experiment.env.rpartition(":")[0] not in ("", "ale_py"):
        return None
    game = _registered_game(experiment.env)
    if game is None:
        return None
    width = config.image_width if isinstance(config, FragmentSettings) else None
    values = {
        **game.env_config(),
        "image_size": config.image_size,
        "image_width": width or config.image_size,
        "frame_stack": config.frame_stack,
    }
    for key, value in fields_of_game(config.env_config, game.frame_skip).items():
        if key not in values or key == "game":
            raise UserError(f"config.env_config.{key}: unknown key{nearest(key, values)}")
        whole = isinstance(values[key], float) and type(value) is int
        if type(value) is not type(values[key]) and not whole:
            raise UserError(
                f"config.env_config.{key}: {value!r} is not of type {type(values[key]).__name__}"
            )
        values[key] = value
    if width is None and "image_width" not in config.env_config:
        values["image_width"] = values["image_size"]
    return AtariSettings(**values)


def _registered_game(env_id: str) -> AtariSettings | None:
    """Returns the settings of an ALE environment from Gymnasium's registry."""
    spec = find_spec(env_id)
    kwargs = spec.kwargs
    if spec.entry_point != "ale_py.env:AtariEnv" or kwargs.get("obs_type", "rgb") == "ram":
        return None
    if kwargs.get("full_action_space") or kwargs.get("frameskip") not in (1, 4):
        return None
    return AtariSettings(
        game=kwargs["game"],
        repeat_action_probability=kwargs["repeat_action_probability"],
        max_episode_frames=kwargs["max_num_frames_per_episode"],
    )


def make_vector_env(
    settings: AtariSettings,
    num_envs: int,
    num_threads: int = 1,
    screen: bool = False,
    autoreset: AutoresetMode = AutoresetMode.SAME_STEP,
) -> AtariVectorEnv:
    """Makes `num_envs` copies of a game that are stepped in one call.

    Rewards are the game's own. By default a finished episode restarts within the same step: the
    observation returned is then the first of the next episode, `info["final_obs"]` the last of
    the finished one. RLlib's own env runner wants the restart in the next step.

    Args:
        screen: Observations are the game's screen for people, [N, 1, 210, 160, 3] RGB, instead
            of the policy's. With the same seed and actions both show the same play.
    """
    height, width = (210, 160) if screen else settings.image_shape
    return _Games(
        settings.game,
        num_envs,
        num_threads=num_threads,
        autoreset_mode=autoreset,
        max_num_frames_per_episode=settings.max_episode_frames,
        repeat_action_probability=settings.repeat_action_probability,
        img_height=height,
        img_width=width,
        grayscale=not screen,
        stack_num=1 if screen else settings.frame_stack,
        frameskip=settings.frame_skip,
        noop_max=settings.noop_max,
        # Gymnasium's AtariPreprocessing presses no button for the player.
        use_fire_reset=False,
        # The learner clips rewards and ends returns at a lost life; the game does not.
        reward_clipping=False,
        episodic_life=False,
    )


class _Games(AtariVectorEnv):
    """Games whose sticky actions differ even if no seed is given.

    The emulator would seed them with the second at which it loads a game, so some would be alike.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._needs_seeds = kwargs["repeat_action_probability"] > 0

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        if seed is None and self._needs_seeds:
            seed = np.random.SeedSequence().generate_state(self.num_envs).astype(np.int64) % 2**31
        self._needs_seeds = False
        return super().reset(seed=seed, options=options)
