"""The parts of a nested space, named as code reaches them: observation_space["arm"][0]."""

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

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
        UserError: There is no network for a part.
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


def _entries(space: spaces.Space[Any], name: str) -> Iterator[Entry]:
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            quoted = f'"{key}"' if isinstance(key, str) else key
            yield from _entries(part, f"{name}[{quoted}]")
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            yield from _entries(part, f"{name}[{index}]")
    else:
        yield Entry(name, space)
