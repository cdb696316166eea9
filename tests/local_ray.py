"""A Ray in the tests' own process, which the tests of all files share."""

from __future__ import annotations

import itertools
import signal
import sys
import time

CPUS = 3
"""More than a machine with two has: what is tested here is not speed."""
FREE_WITHIN_S = 60.0


def local_ray() -> None:
    """Starts Ray in this process unless it is there; waits until nothing occupies its CPUs."""
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


def leave_local_ray() -> None:
    """Ends the Ray of this process with its folder; nothing where there is none."""
    if "ray" not in sys.modules or "payload.run.ray_folder" not in sys.modules:
        return
    import ray
    from ray._private import worker

    from payload.run.ray_folder import remove_ray_folder

    node = worker._global_node
    started = [] if node is None else list(node.all_processes.values())
    ray.shutdown()
    for info in itertools.chain(*started):
        info.process.wait(FREE_WITHIN_S)
    remove_ray_folder()
