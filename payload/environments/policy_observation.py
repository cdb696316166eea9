"""What a policy sees of an environment: a vector of float32, or an image.

RLlib's networks read boxes of one or three dimensions. Everything else is flattened, as
gymnasium.spaces.flatten does it: a Dict becomes one vector, a Discrete a one-hot vector.
"""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from payload.environments.space_entries import Entry, check_size, entries
from payload.errors import UserError

MIN_IMAGE_SIDE = 32
"""A 2-D box with smaller sides is a table of numbers, not an image."""
MAX_CHANNELS = 16
MAX_NUMBERS = 2**20
"""Numbers of a vector: the first layer of RLlib's default network then takes 1 GB."""
MAX_IMAGE_BYTES = 2**26
"""Twice an image of 3840 x 2160 pixels, as bytes."""


class PolicyObservations:
    """The policy's view of an observation space."""

    policy_space: spaces.Box
    """float32 [D], or an image [H, W, C] of uint8 or float32."""

    def __init__(self, space: spaces.Space[Any], name: str = "observation_space") -> None:
        """
        Args:
            name: How code reaches the space.

        Raises:
            UserError: No network takes a part; the space is empty or too large.
        """
        self.space = space
        parts = entries(space, name, "wrappers: [{FilterObservation: {filter_keys: [...]}}] helps")
        self._is_image = isinstance(space, spaces.Box) and _is_image(space.shape)
        self._is_bytes = space.dtype == np.uint8
        _check_size(parts, self._is_image, self._is_bytes)
        self._is_pixels = False
        if self._is_image:
            assert isinstance(space, spaces.Box)
            whole = np.issubdtype(space.dtype, np.integer) and not self._is_bytes
            self._is_pixels = whole and not space.low.any() and bool((space.high == 255).all())
            low, high = self.from_environment(space.low), self.from_environment(space.high)
        else:
            bounds = [_bounds(part.space) for part in parts]
            low, high = (
                np.concatenate(side, dtype=np.float32) for side in zip(*bounds, strict=True)
            )
        self.policy_space = spaces.Box(low, high, dtype=low.dtype.type)

    @np.errstate(
        over="ignore"
    )  # float32 has no larger ones: they become infinite, which is a fault.
    def from_environment(self, observation: Any) -> npt.NDArray[Any]:
        """Returns an observation as the policy sees it."""
        if self._is_image:
            return self._image(np.asarray(observation))
        if isinstance(self.space, spaces.Box):
            return np.asarray(observation, self.space.dtype).astype(np.float32).ravel()
        parts = [np.asarray(part, np.float32) for part in _flat(self.space, observation)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _image(self, image: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if image.ndim == 2:
            image = image[..., np.newaxis]
        elif image.ndim == 4:
            image = np.moveaxis(image, 0, -1).reshape(*image.shape[1:3], -1)
        elif _has_channels_first(image.shape):
            image = np.moveaxis(image, 0, -1)
        if self._is_bytes:
            return image
        image = image.astype(np.float32)
        return image / np.float32(255) if self._is_pixels else image


class DictObservations:
    """A Dict of observations, each of which a policy sees as it would see it alone."""

    def __init__(self, space: spaces.Dict) -> None:
        self._parts = {
            key: PolicyObservations(part, f'observation_space["{key}"]')
            for key, part in space.spaces.items()
        }
        self.policy_space = spaces.Dict({k: part.policy_space for k, part in self._parts.items()})

    def from_environment(self, observation: Any) -> dict[str, npt.NDArray[Any]]:
        return {key: part.from_environment(observation[key]) for key, part in self._parts.items()}


def policy_observations(
    space: spaces.Space[Any], keeps_dict: bool
) -> PolicyObservations | DictObservations:
    """Returns a policy's view of an observation space.

    Args:
        keeps_dict: Whether the parts of a Dict stay apart.

    Raises:
        UserError: No network takes a part; the space is empty or too large.
    """
    if keeps_dict and isinstance(space, spaces.Dict):
        return DictObservations(space)
    return PolicyObservations(space)


def _is_image(shape: tuple[int, ...]) -> bool:
    """Whether a box is an image, one with channels, or a stack of these."""
    if len(shape) == 4:
        return min(shape[1:3]) >= MIN_IMAGE_SIDE and shape[3] <= MAX_CHANNELS
    return len(shape) == 3 or (len(shape) == 2 and min(shape) >= MIN_IMAGE_SIDE)


def _has_channels_first(shape: tuple[int, ...]) -> bool:
    channels, *_, last = shape
    return channels <= MAX_CHANNELS < last


def _check_size(parts: list[Entry], is_image: bool, is_bytes: bool) -> None:
    """Raises UserError for an empty or a large space, before its flat bounds are made."""
    if not sum(spaces.flatdim(part.space) for part in parts):
        raise UserError(
            "observation_space is empty; an environment that shows nothing has Discrete(1)"
        )
    if is_image:
        check_size(parts, MAX_IMAGE_BYTES, "bytes for the network", each=1 if is_bytes else 4)
    else:
        check_size(parts, MAX_NUMBERS, "numbers for the network")


@np.errstate(over="ignore")
def _bounds(space: spaces.Space[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Returns the bounds of a flattened space without parts."""
    if isinstance(space, spaces.Box):
        return space.low.ravel().astype(np.float32), space.high.ravel().astype(np.float32)
    size = spaces.flatdim(space)
    return np.zeros(size, np.float32), np.ones(size, np.float32)


def _flat(space: spaces.Space[Any], observation: Any) -> Iterator[Any]:
    """Yields the parts of an observation as vectors; Gymnasium's own fails for an empty Dict."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _flat(part, observation[key])
    elif isinstance(space, spaces.Tuple):
        for part, value in zip(space.spaces, observation, strict=True):
            yield from _flat(part, value)
    else:
        yield spaces.flatten(space, observation)


class PolicyObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """An environment whose observations are what the policy sees."""

    def __init__(self, env: gymnasium.Env[Any, Any], keeps_dict: bool = False) -> None:
        super().__init__(env)
        self._observations = policy_observations(env.observation_space, keeps_dict)
        self.observation_space = self._observations.policy_space

    def observation(self, observation: Any) -> Any:
        return self._observations.from_environment(observation)


class PolicyObservationVector(gymnasium.vector.VectorObservationWrapper):
    """The same for a package's own vector environment."""

    def __init__(
        self, env: gymnasium.vector.VectorEnv[Any, Any, Any], keeps_dict: bool = False
    ) -> None:
        super().__init__(env)
        self._observations = policy_observations(env.single_observation_space, keeps_dict)
        self.single_observation_space = self._observations.policy_space
        single = env.single_observation_space
        is_box = isinstance(single, spaces.Box)
        self._is_flat = is_box and len(self.single_observation_space.shape or ()) == 1
        self._is_same = is_box and self.single_observation_space == single
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)

    def observations(self, observations: Any) -> Any:
        # A package's environment may change its array in the next step: both copy it.
        if self._is_flat:
            with np.errstate(over="ignore"):
                return np.reshape(observations, (self.num_envs, -1)).astype(np.float32)
        if self._is_same:
            return np.array(observations, self.single_observation_space.dtype)
        each = iterate(self.env.observation_space, observations)
        seen = [self._observations.from_environment(single) for single in each]
        batch = create_empty_array(self.single_observation_space, self.num_envs)
        return concatenate(self.single_observation_space, seen, batch)
