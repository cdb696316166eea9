"""Control groups with little memory, in which the kernel really kills."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ROOTS = {
    Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes",
    Path("/sys/fs/cgroup"): "memory.max",
}
"""Roots of control groups, version 1 and 2, and the file with the limit of a group's memory."""


@contextmanager
def memory_group(mebibytes: int) -> Iterator[Path]:
    """Makes a control group with this much memory, or skips the test."""
    for root, limit in ROOTS.items():
        group = root / f"volley-test-{os.getpid()}"
        with suppress(OSError):
            group.mkdir()
            try:
                (group / limit).write_text(str(mebibytes * 2**20))
                yield group
                return
            finally:
                group.rmdir()
    pytest.skip("this user may not limit the memory of a process")
