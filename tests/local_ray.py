"""A Ray in the tests' own process, shared by the tests of all files."""

from __future__ import annotations

import itertools
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

CPUS = 3
"""More than a two-core machine has: the tests do not measure speed."""
FREE_WITHIN_S = 60.0


def local_ray() -> None:
    """Starts Ray in this process unless it is running; waits until all its CPUs are free."""
    import ray

    from payload.run.ray_folder import make_ray_folder

    if not ray.is_initialized():
        handler = signal.getsignal(signal.SIGTERM)
        ray.init(
            address="local",
            num_cpus=CPUS,
            include_dashboard=False,
            log_to_driver=False,
            _temp_dir=str(make_ray_folder()),
        )
        signal.signal(signal.SIGTERM, handler)
    end = time.monotonic() + FREE_WITHIN_S
    while ray.available_resources().get("CPU", 0.0) < CPUS:
        assert time.monotonic() < end, "an earlier test keeps CPUs of Ray"
        time.sleep(0.1)


@contextmanager
def short_lived_cluster(head: dict[str, Any]) -> Iterator[Cluster]:
    """Starts the head of a multi-node cluster that leaves nothing behind.

    Args:
        head: Arguments of the head node. The dashboard is off by default: it takes 13 CPU seconds.
    """
    from ray.cluster_utils import Cluster

    with (
        TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as environment,
    ):
        # Jobs find their own Ray there, even if this machine runs others.
        environment.setenv("RAY_TMPDIR", folder)
        # The dashboard leaves a socket behind.
        environment.setenv("TMPDIR", folder)
        arguments = {"include_dashboard": False, **head}
        cluster = Cluster(initialize_head=True, head_node_args=arguments)
        try:
            yield cluster
        finally:
            with suppress(Exception):  # The head may be gone.
                cluster.shutdown()


def leave_local_ray() -> None:
    """Shuts down this process's Ray, if any, and removes its folder."""
    if "ray" not in sys.modules or "payload.run.ray_folder" not in sys.modules:
        return
    import ray
    from ray._private import worker

    from payload.run.ray_folder import remove_ray_folder

    node = worker._global_node
    started = [] if node is None else list(node.all_processes.values())
    try:
        ray.shutdown()
        for info in itertools.chain(*started):
            info.process.wait(FREE_WITHIN_S)
    finally:
        remove_ray_folder()
