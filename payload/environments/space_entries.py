"""The parts of a nested space, named as code reaches them: observation_space["arm"][0]."""

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from payload.errors import UserError

KINDS = (spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete)
SUPPORTED = "Box, Discrete, MultiBinary, MultiDiscrete, and Dict or Tuple of these"


class Entry(NamedTuple):
    """A part of a space that has no parts."""

    name: str
    space: spaces.Space[Any]

    def __str__(self) -> str:
        return f"{self.name} is {textwrap.shorten(str(self.space), 80)}"


def entries(space: spaces.Space[Any], name: str, remedy: str = "") -> list[Entry]:
    """Returns the parts of a space of numbers.

    Args:
        remedy: What helps if another part of a Dict is none.

    Raises:
        UserError: No network takes a part.
    """
    parts = list(_entries(space, name))
    for entry in parts:
        if not isinstance(entry.space, KINDS):
            hint = f"; {remedy}" if remedy and isinstance(space, spaces.Dict) else ""
            raise UserError(f"{entry}, for which there is no network{hint}; allowed: {SUPPORTED}")
    return parts


def largest(parts: Iterable[Entry]) -> Entry:
    """Returns the part with most numbers."""
    return max(parts, key=lambda part: spaces.flatdim(part.space))


def check_size(parts: list[Entry], at_most: int, unit: str, each: int = 1) -> None:
    """Raises UserError, with the largest part, if all together are larger than `at_most`.

    Args:
        unit: What is counted.
        each: How many a number is.
    """
    total = sum(spaces.flatdim(part.space) for part in parts) * each
    if total <= at_most:
        return
    part = largest(parts)
    size = spaces.flatdim(part.space) * each
    of_all = "" if size == total else f" of {total:,}"
    raise UserError(f"{part}, {size:,}{of_all} {unit}; at most {at_most:,} are allowed")


def policy_spaces(seen: spaces.Space[Any], acted: spaces.Space[Any]) -> str:
    """Returns a policy's two spaces in words: what its network's shape depends on."""
    return f"observations are {_shape(seen)}, actions {_shape(acted)}"


def _shape(space: spaces.Space[Any]) -> str:
    if isinstance(space, spaces.Tuple):
        return f"({', '.join(map(_shape, space.spaces))})"
    if isinstance(space, spaces.Dict):
        return f"{{{', '.join(f'{key}: {_shape(part)}' for key, part in space.spaces.items())}}}"
    return f"Box{space.shape}" if isinstance(space, spaces.Box) else str(space)


def difference_from(space: spaces.Space[Any], value: Any, name: str) -> str:
    """Returns the first part of a space in which a value is not, and why; "" if there is none.

    The data type is not compared where its numbers can be converted.
    """
    if isinstance(space, spaces.Dict):
        parts = [(f"{name}[{_quoted(key)}]", space[key], value[key]) for key in space.spaces]
    elif isinstance(space, spaces.Tuple):
        each = zip(space.spaces, value, strict=True)
        parts = [(f"{name}[{index}]", part, own) for index, (part, own) in enumerate(each)]
    else:
        if isinstance(space, spaces.Box):
            what = _outside_box(space, value)
        else:
            what = "" if value in space else f"{type(value).__name__} {value}"
        return what and (
            f"{name}: {textwrap.shorten(what, 80)} is not in {textwrap.shorten(str(space), 80)}"
        )
    return next(filter(None, (difference_from(part, own, to) for to, part, own in parts)), "")


def _outside_box(box: spaces.Box, value: Any) -> str:
    """Returns a value in words if it is outside a box."""
    array = np.asarray(value)
    words = f"{array.dtype} of shape {array.shape}"
    if array.shape != box.shape or not np.can_cast(array.dtype, np.complex128):
        return words
    if np.issubdtype(box.dtype, np.floating):
        array = array.astype(box.dtype)
    inside = (box.low <= array) & (array <= box.high)
    return "" if inside.all() else f"{words} from {array.min():g} to {array.max():g}"


def _quoted(key: Any) -> str:
    return f'"{key}"' if isinstance(key, str) else str(key)


def _entries(space: spaces.Space[Any], name: str) -> Iterator[Entry]:
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _entries(part, f"{name}[{_quoted(key)}]")
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _entries(part, f"{name}[{index}]")
    else:
        yield Entry(name, space)
