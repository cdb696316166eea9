"""What a policy sees of an environment: a vector of float32, or an image.

RLlib's networks read boxes of one or three dimensions. Everything else is flattened, as
gymnasium.spaces.flatten does it: a Dict becomes one vector, a Discrete a one-hot vector.
"""

from typing import Any, cast

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate

from payload.errors import UserError

MIN_IMAGE_SIDE = 32
"""A 2-D box with smaller sides is a table of numbers, not an image."""
MAX_CHANNELS = 16
SUPPORTED = "Box of 1 to 3 dimensions, Discrete, MultiBinary, MultiDiscrete, Dict, Tuple"


def policy_space(space: spaces.Space[Any]) -> spaces.Box:
    """Returns the space of what the policy sees: float32 [D], or an image [H, W, C].

    Raises:
        UserError: RLlib has no network for it.
    """
    if isinstance(space, spaces.Box) and _is_image(space):
        low, high = to_policy(space, space.low), to_policy(space, space.high)
        return spaces.Box(low, high, dtype=cast("Any", low.dtype.type))
    if isinstance(space, spaces.Box) and len(space.shape) > 3:
        raise UserError(f"a box of {len(space.shape)} dimensions; allowed: {SUPPORTED}")
    if not space.is_np_flattenable:
        raise UserError(f"a space of type {type(space).__name__}; allowed: {SUPPORTED}")
    flat = spaces.flatten_space(space)
    assert isinstance(flat, spaces.Box), "what is flattenable becomes a box"
    low, high = flat.low.astype(np.float32), flat.high.astype(np.float32)
    return spaces.Box(low, high, dtype=np.float32)


def to_policy(space: spaces.Space[Any], observation: Any) -> npt.NDArray[Any]:
    if not isinstance(space, spaces.Box) or not _is_image(space):
        return np.asarray(spaces.flatten(space, observation), np.float32)
    image: npt.NDArray[Any] = observation
    if image.ndim == 2:
        return image[..., np.newaxis]
    return np.moveaxis(image, 0, -1) if _has_channels_first(space) else image


def _is_image(space: spaces.Box) -> bool:
    return len(space.shape) == 3 or (len(space.shape) == 2 and min(space.shape) >= MIN_IMAGE_SIDE)


def _has_channels_first(space: spaces.Box) -> bool:
    channels, *_, last = space.shape
    return channels <= MAX_CHANNELS < last


class PolicyObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """An environment whose observations are what the policy sees."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.observation_space = policy_space(env.observation_space)

    def observation(self, observation: Any) -> npt.NDArray[Any]:
        return to_policy(self.env.observation_space, observation)


class PolicyObservationVector(gymnasium.vector.VectorObservationWrapper):
    """The same for a package's own vector environment."""

    def __init__(self, env: gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self.single_observation_space = policy_space(env.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)

    def observations(self, observations: Any) -> Any:
        single = self.env.single_observation_space
        each = iterate(self.env.observation_space, observations)
        return np.stack([to_policy(single, observation) for observation in each])
