"""head.autoscaler.first_workers LEAST: requests the first workers while the head still boots.

Ray's autoscaler starts minutes later, with the head's Python environment; by then the workers are
booting. This runs on the system's Python, which has the standard library only.
"""

import sys
import time

from ..cluster_settings import ClusterSettings, read_settings
from ..files import replace
from ..paths import FIRST_WORKERS, WORKERS
from ..resource_manager import ResourceManagerError, for_machine
from .scale_set import ScaleSet

RETRY_FOR_S = 20 * 60.0
"""A role assignment can take ten minutes to propagate."""
PAUSE_S = 3.0


def main(least: int) -> int:
    settings = read_settings()
    assert settings is not None, "the run command writes the settings first"
    end = time.monotonic() + RETRY_FOR_S
    # Once the autoscaler has written its report, it makes the requests itself.
    while not WORKERS.exists():
        try:
            request_workers(settings, least)
        except ResourceManagerError as error:
            print(error, flush=True)
        else:
            return 0
        if time.monotonic() > end:
            return 1
        time.sleep(PAUSE_S)
    return 0


def request_workers(settings: ClusterSettings, least: int) -> None:
    """Requests the workers unless some were requested before; leaves the operation's URL in a file.

    Raises:
        ResourceManagerError: Azure refused, or did not answer.
    """
    scale_set = ScaleSet(for_machine(settings.endpoint), settings.scale_set)
    capacity = scale_set.capacity()
    if capacity.machines:
        return
    operation = scale_set.set_capacity(capacity, least)
    print(f"requested {least} workers from Azure", flush=True)
    replace(FIRST_WORKERS, operation.encode())


def take_operation() -> str:
    """Returns the operation's URL once; "" if there is none."""
    try:
        operation = FIRST_WORKERS.read_text()
        FIRST_WORKERS.unlink()
    except OSError:
        return ""
    return operation


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
