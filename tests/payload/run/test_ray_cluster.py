"""The CPUs of the machine on which a run starts Ray, and the processes that it leaves there."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from payload.run.ray_cluster import available_cpus

ENDS_AT_ONCE = """
import subprocess
from payload.run.ray_cluster import exit_at_once

print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
exit_at_once(3)
"""


def test_every_cpu_is_available_where_a_process_has_no_share_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert available_cpus() == os.cpu_count()


@pytest.mark.slow
def test_a_run_that_exits_past_rays_shutdown_leaves_no_process_that_it_has_started() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS_AT_ONCE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert not psutil.pid_exists(int(done.stdout))
