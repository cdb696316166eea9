"""A test run that leaves something behind is detected."""

from __future__ import annotations

import subprocess
import sys

import pytest

RUN = """
import subprocess, sys, tempfile

import psutil
from tests import leftovers

leftovers.END_S = 0.0
run = leftovers.Leftovers(network=False)
if sys.argv[1:]:
    tempfile.mkstemp(prefix="forgotten-")
    sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
    while not psutil.Process(sleeper.pid).environ():
        pass  # The kernel sets it a moment after Popen has returned.
print("\\n".join(run.found()))
if sys.argv[1:]:
    sleeper.kill()
"""


@pytest.mark.slow
@pytest.mark.parametrize("leaves", [False, True])
def test_a_process_and_a_file_are_found(leaves: bool) -> None:
    command = [sys.executable, "-c", RUN, *(["it"] if leaves else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    left = done.stdout.split("\n")[:-1] if done.stdout.strip() else []
    assert len(left) == 2 * leaves, left
    if leaves:
        assert left[0].startswith("process ")
        assert "sleep 60" in left[0]
        assert "/forgotten-" in left[1]
