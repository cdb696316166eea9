"""Gymnasium's own words for an Atari game, in the terms of the fast path."""

from collections.abc import Mapping
from typing import Any

from payload.errors import UserError
from payload.experiment.written_numbers import whole_number

ALWAYS = {"full_action_space": False, "obs_type": "rgb", "mode": None, "difficulty": None}
"""Arguments with the only value that the vector environment has; policies see gray images."""
FRAMES = {"max_num_frames_per_episode": "max_episode_frames"}


def fields_of_game(env_config: Mapping[str, Any], usual_skip: int) -> dict[str, Any]:
    """Returns the arguments of gymnasium.make for a game as fields of AtariSettings.

    `frameskip` is the emulator's own, before the preprocessing: with 1, as in NoFrameskip-v4 and in
    RLlib's wrappers, the preprocessing skips the usual number; with another one it skips none.

    Args:
        usual_skip: Frames of an environment step where nothing is said.

    Raises:
        UserError: The vector environment cannot do it, or both words of a field are given.
    """
    fields = {key: whole_number(value) for key, value in env_config.items() if key not in ALWAYS}
    for key in env_config.keys() & ALWAYS.keys():
        if env_config[key] not in (ALWAYS[key], None):
            raise UserError(
                f"config.env_config.{key}: {env_config[key]!r}: Atari games have {ALWAYS[key]!r}"
            )
    for old, new in FRAMES.items():
        if old in fields:
            _put(fields, old, new, fields.pop(old))
    skip = fields.pop("frameskip", 1)
    if skip != 1:
        _put(fields, "frameskip", "frame_skip", skip)
    if "max_episode_steps" in fields:
        steps = fields.pop("max_episode_steps")
        if not isinstance(steps, int):
            raise UserError(f"config.env_config.max_episode_steps: {steps!r} is not of type int")
        frames = steps * fields.get("frame_skip", usual_skip)
        _put(fields, "max_episode_steps", "max_episode_frames", frames)
    return fields


def notes_on_game(env_config: Mapping[str, Any]) -> list[str]:
    """Returns a line for a word that means less than it seems to say."""
    if env_config.get("frameskip") != 1 or "frame_skip" in env_config:
        return []
    return [
        "config.env_config.frameskip 1 is the emulator's own: the preprocessing skips frames as "
        "for NoFrameskip-v4; frame_skip: 1 skips none"
    ]


def _put(fields: dict[str, Any], old: str, new: str, value: Any) -> None:
    if new in fields:
        raise UserError(f"config.env_config.{old}: {new} is set too; keep one of the two")
    fields[new] = value
