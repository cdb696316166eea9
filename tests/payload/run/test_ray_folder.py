"""The folder of a local Ray is removed with its driver, or when the next one starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from payload.run.ray_folder import PREFIX

pytestmark = pytest.mark.slow

DRIVER = """
import os, signal, sys
from payload.run.ray_folder import make_ray_folder

print(make_ray_folder(), flush=True)
if "killed" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
if "waits" in sys.argv:
    sys.stdin.read()
"""


def driver(parent: Path, what: str) -> subprocess.Popen[str]:
    """Starts a process that makes a Ray folder in `parent`, and then does `what`."""
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, what],
        env={**os.environ, "RAY_TMPDIR": str(parent)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path: the length of Ray's socket paths is limited."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder:
        yield Path(folder)


def test_a_driver_that_ends_leaves_nothing(short: Path) -> None:
    with driver(short, "ends") as process:
        folder = Path(process.communicate()[0].strip())
    assert folder.name.startswith(PREFIX)
    assert not list(short.iterdir())


@pytest.mark.parametrize("parent", ["relative", "/missing", f"/tmp/{'long' * 25}"])
def test_a_folder_in_which_ray_could_not_start_is_not_used(parent: str) -> None:
    with driver(Path(parent), "ends") as process:
        folder = Path(process.communicate()[0].strip())
    assert folder.parent == Path("/tmp")


def test_what_a_killed_driver_has_left_is_removed_at_the_next_start(short: Path) -> None:
    with driver(short, "killed") as killed:
        left = Path(killed.communicate()[0].strip())
    assert killed.returncode == -signal.SIGKILL
    assert left.exists()
    with driver(short, "ends") as process:
        process.communicate()
    assert not left.exists()


def test_what_others_have_there_stays(short: Path) -> None:
    of_ray = short / "ray/session_2026"
    of_ray.mkdir(parents=True)
    with driver(short, "waits") as alive:
        assert alive.stdout is not None
        folder = Path(alive.stdout.readline().strip())
        with driver(short, "ends") as process:
            process.communicate()
        assert folder.exists()
        alive.communicate("")
    assert of_ray.exists()
