"""head.sleep.send_workers_home: deletes all workers, before Azure takes the head away.

One change of the capacity, without waiting: Azure announces an eviction 30 s ahead.
"""

import sys
from dataclasses import replace

from ..autoscaler.scale_set import ScaleSet
from ..cluster_settings import read_settings
from ..resource_manager import ResourceManagerError, for_machine


def main() -> int:
    settings = read_settings()
    if settings is None or settings.scaling == "cpu":
        return 0  # No worker exists yet, or Azure's own rules scale them.
    scale_set = ScaleSet(for_machine(settings.endpoint), settings.scale_set)
    try:
        # Whatever Ray's autoscaler has changed meanwhile.
        scale_set.set_capacity(replace(scale_set.capacity(), etag=""), 0)
    except ResourceManagerError as error:
        print(f"the workers stay: {error}", flush=True)
        return 1
    print("Azure deletes the workers", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
