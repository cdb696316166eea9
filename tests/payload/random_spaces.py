"""Spaces that environments may declare, for property tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st

INTEGERS: list[Any] = [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64]
BOOLEAN: Any = np.bool_
FLOATS: list[Any] = [np.float16, np.float32, np.float64]


def shapes(dimensions: int = 2) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of none to some dimensions, with none to three numbers along each."""
    return st.lists(st.integers(0, 3), max_size=dimensions).map(tuple)


@st.composite
def boxes(draw: st.DrawFn, dimensions: int = 2) -> spaces.Box:
    """Boxes of any type; each number has two bounds, one or none."""
    shape = draw(shapes(dimensions))
    if draw(st.booleans()):
        dtype = draw(st.sampled_from(INTEGERS))
        whole = st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
        low, high = np.empty(shape, dtype), np.empty(shape, dtype)
        for place in np.ndindex(shape):
            low[place], high[place] = sorted([draw(whole), draw(whole)])
        return spaces.Box(low, high, dtype=dtype)
    if draw(st.booleans()):
        return spaces.Box(0, 1, shape, dtype=BOOLEAN)
    dtype = draw(st.sampled_from(FLOATS))
    # What is larger than float32's largest number is not finite for a network.
    limit = min(float(np.finfo(dtype).max), float(np.finfo(np.float32).max))
    some = st.floats(-limit, limit, width=np.dtype(dtype).itemsize * 8)
    low, high = np.empty(shape, dtype), np.empty(shape, dtype)
    for place in np.ndindex(shape):
        low[place], high[place] = sorted([draw(some), draw(some)])
        low[place] = draw(st.sampled_from([low[place], -np.inf]))
        high[place] = draw(st.sampled_from([high[place], np.inf]))
    return spaces.Box(low, high, dtype=dtype)


def _discrete() -> st.SearchStrategy[spaces.Discrete[Any]]:
    return st.builds(
        spaces.Discrete, st.integers(1, 5), start=st.integers(-3, 3), dtype=st.just(np.int32)
    )


@st.composite
def _multi_discrete(draw: st.DrawFn) -> spaces.MultiDiscrete:
    shape = draw(shapes())
    numbers = int(np.prod(shape))
    counts = draw(st.lists(st.integers(1, 4), min_size=numbers, max_size=numbers))
    starts = draw(st.lists(st.integers(-3, 3), min_size=numbers, max_size=numbers))
    dtype: Any = draw(st.sampled_from([np.int8, np.int64]))
    nvec, start = np.reshape(counts, shape).astype(dtype), np.reshape(starts, shape).astype(dtype)
    return spaces.MultiDiscrete(nvec, dtype=dtype, start=start)


def _multi_binary() -> st.SearchStrategy[spaces.MultiBinary]:
    return st.builds(spaces.MultiBinary, st.lists(st.integers(1, 3), min_size=1, max_size=2))


def numeric_spaces(dimensions: int = 2) -> st.SearchStrategy[spaces.Space[Any]]:
    """Spaces of numbers, nested ones and empty ones too.

    Args:
        dimensions: At most this many in a box.
    """
    leaves = st.one_of(boxes(dimensions), _discrete(), _multi_discrete(), _multi_binary())
    return st.recursive(
        leaves,
        lambda parts: st.one_of(
            st.dictionaries(st.sampled_from("abc"), parts, max_size=3).map(spaces.Dict),
            st.lists(parts, max_size=3).map(spaces.Tuple),
        ),
        max_leaves=5,
    )
