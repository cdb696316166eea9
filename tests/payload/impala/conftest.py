"""What several tests of learners need."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from payload.impala.module import pixel_statistics


@pytest.fixture(scope="module")
def pixel_statistics_once() -> Iterator[None]:
    """Has a game played for its pixel statistics once: a second for each learner that is built."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("payload.impala.learner.pixel_statistics", cache(pixel_statistics))
        yield
