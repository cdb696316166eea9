"""A channel of conda that the tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conda_channel import write_channel


@pytest.fixture(scope="session")
def channel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a channel; rattler's cache is a folder of the tests meanwhile."""
    folder = tmp_path_factory.mktemp("channel")
    write_channel(folder)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RATTLER_CACHE_DIR", str(tmp_path_factory.mktemp("rattler")))
        yield folder
