"""The CPUs of the machine on which a run starts Ray, and the processes that it leaves there."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from payload.errors import TemporaryError
from payload.run.ray_cluster import SLOW_START, available_cpus, too_slow_is_told

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


def test_a_ray_that_is_too_slow_to_start_is_reported_in_one_line() -> None:
    from ray._private.node import Node

    # This method contains Ray's limit, and only the text of its exception identifies it.
    assert f"The current node {SLOW_START}" in inspect.getsource(Node.__init__)
    with pytest.raises(TemporaryError, match="did not start within 30 s"), too_slow_is_told():
        raise Exception(f"The current node {SLOW_START}.")
    with pytest.raises(ValueError, match="another"), too_slow_is_told():
        raise ValueError("another")


@pytest.mark.slow
def test_a_run_that_exits_past_rays_shutdown_leaves_no_process_that_it_has_started() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS_AT_ONCE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert not psutil.pid_exists(int(done.stdout))


WITHOUT_SHARED_MEMORY = """
mount -t tmpfs tmpfs "$1"
for name in null zero random urandom tty full; do cp -a /dev/$name "$1"; done
mount --bind "$1" /dev
test ! -e /dev/shm && exec "$2" -c '
import ray
from payload.run.ray_cluster import connect, disconnect
connect(None)
print(ray.get(ray.put("kept")))
disconnect(0)'
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="needs Linux and root")
def test_ray_starts_on_a_machine_without_shared_memory(tmp_path: Path) -> None:
    command = ["unshare", "--mount", "--propagation=private", "sh", "-ec", WITHOUT_SHARED_MEMORY]
    done = subprocess.run(
        [*command, "sh", str(tmp_path), sys.executable],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.PIPE,
    )
    assert done.stdout == "kept\n", done.stderr
