"""A machine runs one rehearsal at a time; a killed one does not block the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rehearsal.shared_file import RehearsalRunningError, rehearsal_lock
from tests.project import ROOT

pytestmark = pytest.mark.slow


@contextmanager
def held_elsewhere(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts another process that holds the lock."""
    program = (
        "import sys, pathlib; from rehearsal.shared_file import rehearsal_lock\n"
        "with rehearsal_lock(pathlib.Path(sys.argv[1])): print(1, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


def test_a_second_rehearsal_is_told_the_process_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "home/lock"
    with (
        held_elsewhere(path) as other,
        pytest.raises(RehearsalRunningError, match=f"process {other.pid}$"),
        rehearsal_lock(path),
    ):
        pass


def test_the_lock_of_a_killed_rehearsal_is_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with held_elsewhere(path) as other:
        other.send_signal(signal.SIGKILL)
        other.wait()
    with rehearsal_lock(path):
        assert path.read_text() == str(os.getpid())
