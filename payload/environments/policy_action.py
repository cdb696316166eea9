"""Maps a policy's actions to those of an environment.

RLlib has distributions for choices counted from 0 and for real numbers without a bound or in
[-1, 1]. The policy of an environment with other actions acts in a space of these: all choices of
its action space, nested or not, become one Discrete or MultiDiscrete, all numbers one Box.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

from payload.environments.space_entries import Entry, check_size, entries
from payload.errors import UserError

if TYPE_CHECKING:
    import torch

MAX_OUTPUTS = 2**17
"""Choices and numbers together: the network has an output for each."""
WIDEST_FLOATS = float(np.finfo(np.float32).max)
WIDEST_INTEGERS = 2.0**31 - 1
"""Intervals from this width on count as having no bound: environments write the largest value of a
type for "any"."""
MAX_INTEGER = 2.0**53
"""The policy's integers without a bound are at most this: float64 has all of them."""


class PolicyActions:
    """The policy's view of an action space."""

    policy_space: spaces.Space[Any]
    """Discrete from 0, MultiDiscrete from 0, Box of float32 in one dimension, or a Tuple of the
    last two. The Box is [-1, 1] if all numbers have two bounds, otherwise it has none."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        """
        Raises:
            UserError: No network takes a part; the space is empty or too large.
        """
        parts = entries(space, "action_space")
        check_size(parts, MAX_OUTPUTS, "outputs of the network")
        self.space = space
        self._parts = [_part(part.space) for part in parts]
        choices = [part for part in self._parts if isinstance(part, _Choices)]
        numbers = [part for part in self._parts if isinstance(part, _Numbers)]
        counts = [count for part in choices for count in part.counts]
        size = sum(part.size for part in numbers)
        limit = 1.0 if all(part.bounded.all() for part in numbers) else np.inf
        box = spaces.Box(-limit, limit, (size,))
        self._has_both = bool(counts) and size > 0
        if self._has_both:
            # RLlib squeezes the time out of a Discrete's actions in a Tuple, with an LSTM.
            self.policy_space = spaces.Tuple([spaces.MultiDiscrete(counts), box])
        elif counts:
            several = len(counts) > 1
            self.policy_space = (
                spaces.MultiDiscrete(counts) if several else spaces.Discrete(counts[0])
            )
        elif size:
            self.policy_space = box
        else:
            raise UserError("action_space is empty: there is no action to choose")

    def to_environment(self, action: Any) -> Any:
        chosen, values = action if self._has_both else (action, action)
        each = self._split(np.atleast_1d(chosen), np.atleast_1d(values))
        return _nested(self.space, (part(own) for part, own in each))

    def in_graph(self, actions: Any) -> dict[str, torch.Tensor]:
        """Does the same with torch's tensors of N actions: returns [N, ...] of each of `parts`."""
        chosen, values = actions if self._has_both else (actions, actions)
        batch = chosen.shape[0]
        each = self._split(chosen.reshape(batch, -1), values.reshape(batch, -1))
        return {
            entry.name: part.in_graph(own)
            for entry, (part, own) in zip(entries(self.space, "action"), each, strict=True)
            if part.size
        }

    @property
    def parts(self) -> list[Entry]:
        """The parts of the space that have numbers."""
        return [part for part in entries(self.space, "action") if spaces.flatdim(part.space)]

    def _split(self, chosen: Any, values: Any) -> Iterator[tuple[_Choices | _Numbers, Any]]:
        """Yields each part with its own of the last axis of the choices, or of the numbers."""
        for part in self._parts:
            if isinstance(part, _Choices):
                yield part, chosen[..., : part.size]
                chosen = chosen[..., part.size :]
            else:
                yield part, values[..., : part.size]
                values = values[..., part.size :]


class _Choices:
    """A Discrete, MultiDiscrete or MultiBinary."""

    def __init__(self, space: Any) -> None:
        self._space = space
        if isinstance(space, spaces.MultiBinary):
            shape = tuple(space.shape)
            self.counts, self._start = [2] * int(np.prod(shape)), np.zeros(shape, np.int64)
        else:
            counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
            self.counts = [int(count) for count in np.ravel(counts)]
            self._start = np.asarray(space.start, np.int64)
        self.size = len(self.counts)

    def __call__(self, chosen: npt.NDArray[Any]) -> Any:
        action = (self._start.ravel() + chosen).astype(self._space.dtype)
        is_scalar = isinstance(self._space, spaces.Discrete)
        return action[0] if is_scalar else action.reshape(self._start.shape)

    def in_graph(self, chosen: torch.Tensor) -> torch.Tensor:
        start, dtype = _tensor(self._start.ravel()), _tensor(np.empty(0, self._space.dtype)).dtype
        return (start + chosen).to(dtype).reshape(chosen.shape[0], *self._start.shape)


class _Numbers:
    """A Box: [-1, 1] becomes an interval with two bounds; other numbers count from its value
    nearest 0, and are clipped.
    """

    def __init__(self, space: spaces.Box) -> None:
        self._space = space
        self.size = int(np.prod(space.shape))
        self._is_integer = not np.issubdtype(space.dtype, np.floating)
        # Python's numbers: float64 lacks some of int64's, int8 the width of an int8 box.
        self._low, self._high = space.low.ravel(), space.high.ravel()
        low, high = self._low.astype(object), self._high.astype(object)
        width = (high - low).astype(np.float64)
        widest = WIDEST_INTEGERS if self._is_integer else WIDEST_FLOATS
        self.bounded = (space.bounded_below & space.bounded_above).ravel() & (width < widest)
        self._is_interval = not self._is_integer and bool(self.bounded.all())
        self._width = np.where(self.bounded, width, 0.0)
        base = np.where(self.bounded, low, np.clip(0, low, high))
        furthest = MAX_INTEGER
        if not self._is_integer:
            furthest = float(np.finfo(space.dtype).max)
            low, high = np.maximum(low, -furthest), np.minimum(high, furthest)
        self._below = np.maximum((low - base).astype(np.float64), -furthest)
        self._above = np.minimum((high - base).astype(np.float64), furthest)
        self._base = base.astype(space.dtype).astype(np.int64 if self._is_integer else np.float64)

    def __call__(self, values: npt.NDArray[Any]) -> Any:
        # Called for each step of each environment: np.clip and np.where take longer than ufuncs.
        share = (np.minimum(np.maximum(values, -1.0), 1.0) + 1.0) / 2.0
        if self._is_interval:
            numbers = (self._base + share * self._width).astype(self._space.dtype)
            within = np.minimum(np.maximum(numbers, self._low), self._high)
            return within.reshape((*values.shape[:-1], *self._space.shape))
        if self._is_integer:  # Each has an equal share.
            share = np.rint(share * (self._width + 1.0) - 0.5)
            steps = np.where(self.bounded, share, np.rint(values))
        else:
            steps = np.where(self.bounded, share * self._width, values)
        steps = np.clip(steps, self._below, self._above).astype(self._base.dtype)
        numbers = (self._base + steps).astype(self._space.dtype)
        within = np.clip(numbers, self._low, self._high)
        return within.reshape((*values.shape[:-1], *self._space.shape))

    def in_graph(self, values: torch.Tensor) -> torch.Tensor:
        bounded, width, base = map(_tensor, (self.bounded, self._width, self._base))
        share = (values.clip(-1.0, 1.0) + 1.0) / 2.0
        if self._is_integer:
            share = (share * (width + 1.0) - 0.5).round()
            steps = share.where(bounded, values.round().double())
        else:
            steps = (share * width).where(bounded, values.double())
        numbers = base + steps.clip(_tensor(self._below), _tensor(self._above)).to(base.dtype)
        if not self._is_integer:
            # Before the conversion: ONNX clips no float16.
            low, high = (_tensor(side.astype(np.float64)) for side in (self._low, self._high))
            numbers = numbers.clip(low, high)
        dtype = _tensor(np.empty(0, self._space.dtype)).dtype
        return numbers.to(dtype).reshape(values.shape[0], *self._space.shape)


def _part(space: spaces.Space[Any]) -> _Choices | _Numbers:
    return _Numbers(space) if isinstance(space, spaces.Box) else _Choices(space)


def _tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    import torch

    return torch.from_numpy(array)


def _nested(space: spaces.Space[Any], parts: Iterator[Any]) -> Any:
    """Puts the parts where they are in a space."""
    if isinstance(space, spaces.Dict):
        return {key: _nested(part, parts) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_nested(part, parts) for part in space.spaces)
    return next(parts)


class PolicyAction(gymnasium.ActionWrapper[Any, Any, Any]):
    """An environment whose actions are the policy's."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._actions = PolicyActions(env.action_space)
        self.action_space = self._actions.policy_space

    def action(self, action: Any) -> Any:
        return self._actions.to_environment(action)


class PolicyActionVector(gymnasium.vector.VectorActionWrapper):
    """The same for a package's own vector environment."""

    def __init__(self, env: gymnasium.vector.VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self._single = env.single_action_space
        self._actions = PolicyActions(self._single)
        self.single_action_space = self._actions.policy_space
        is_discrete = isinstance(self._single, spaces.Discrete)
        self._is_same = is_discrete and self.single_action_space == self._single
        self.action_space = batch_space(self.single_action_space, env.num_envs)

    def actions(self, actions: Any) -> Any:
        if self._is_same:
            return actions
        if isinstance(self._single, spaces.Box):
            return self._actions.to_environment(actions)
        each = [self._actions.to_environment(a) for a in iterate(self.action_space, actions)]
        return concatenate(self._single, each, create_empty_array(self._single, self.num_envs))
