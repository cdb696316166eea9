"""A small file system, and a function that fills it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MEBIBYTE = 1 << 20


@contextmanager
def small_disk(folder: Path, size_bytes: int = 32 * MEBIBYTE) -> Iterator[Path]:
    """Mounts a file system of this size at a folder, or skips the test if mounting fails."""
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mount.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {mount.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Takes all the space that is left, and for ten seconds any that other programs free."""
    with path.open("wb", buffering=0) as file:
        end = time.monotonic() + 10.0
        while time.monotonic() < end:
            try:
                file.write(bytes(MEBIBYTE // 64))
            except OSError:
                time.sleep(0.01)
