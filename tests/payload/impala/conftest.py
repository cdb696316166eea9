"""Fixtures of several learner tests."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from payload.impala.module import pixel_statistics


@pytest.fixture(scope="module")
def pixel_statistics_once() -> Iterator[None]:
    """Plays a game for its pixel statistics only once, which saves a second per learner."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("payload.impala.learner.pixel_statistics", cache(pixel_statistics))
        yield
