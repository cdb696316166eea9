"""A worker that Ray is starting under run_under ends with its raylet."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from payload.environments import start_worker

pytestmark = pytest.mark.slow

ENDS_IN_S = 30.0


@contextmanager
def started(raylet: subprocess.Popen[str], worker: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts a program as the worker of a raylet."""
    command = [sys.executable, start_worker.__file__, str(worker), "--raylet-name=one"]
    environment = {**os.environ, "RAY_RAYLET_PID": str(raylet.pid)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def raylet() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(["sleep", "600"], text=True) as process:
        yield process
        process.kill()


def test_a_worker_is_started_as_python_would(raylet: subprocess.Popen[str], tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("import sys\nprint(__name__, sys.argv, sys.path[0])\n")
    with started(raylet, worker) as process:
        output, _ = process.communicate()
    assert output == f"__main__ {[str(worker), '--raylet-name=one']} {tmp_path}\n"


def test_a_worker_whose_raylet_is_killed_ends(
    raylet: subprocess.Popen[str], tmp_path: Path
) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("import time\nprint('starts', flush=True)\ntime.sleep(600)\n")
    with started(raylet, worker) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "starts\n"
        raylet.kill()
        raylet.wait()
        assert process.wait(ENDS_IN_S) == 1
