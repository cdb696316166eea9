"""A program that runs Python may clean up after it, and ends in any case."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from payload.processes import kill
from tests.payload.command_line import wait_for

pytestmark = pytest.mark.slow

WRAPPER = 'trap "rm -f held" EXIT; "$0" -c "import time; time.sleep(600)"'


@pytest.mark.parametrize(
    ("script", "tidied_up"),
    [(WRAPPER, True), (f"trap '' TERM; {WRAPPER}; exec sleep 600", False)],
    ids=["one that ends", "one that does not"],
)
def test_a_wrapper_tidies_up_after_its_python(tmp_path: Path, script: str, tidied_up: bool) -> None:
    held = tmp_path / "held"
    held.touch()
    command = ["bash", "-c", script, sys.executable]
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True) as wrapper:
        shell = psutil.Process(wrapper.pid)
        wait_for(lambda: any("python" in child.name() for child in shell.children()))
        started = [*shell.children(recursive=True), shell]
        kill(started)
        wrapper.wait(10)
    assert held.exists() is not tidied_up
    assert not any(process.is_running() for process in started)
