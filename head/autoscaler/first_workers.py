"""head.autoscaler.first_workers LEAST: requests the first workers while the head still boots.

Ray's autoscaler starts minutes later, with the head's Python environment; by then the workers are
booting. This runs on the system's Python, which has the standard library only.
"""

import sys
import time

from ..files import replace
from ..identity.client import Workers
from ..paths import FIRST_WORKERS, WORKERS
from ..resource_manager import ResourceManagerError

RETRY_FOR_S = 20 * 60.0
"""A role assignment can take ten minutes to propagate."""
PAUSE_S = 3.0


def main(least: int) -> int:
    end = time.monotonic() + RETRY_FOR_S
    # Once the autoscaler has written its report, it makes the requests itself.
    while not WORKERS.exists():
        try:
            operation = Workers().grow(least, growing=False)
        except ResourceManagerError as error:
            print(error, flush=True)
        else:
            print(f"requested {least} workers from Azure", flush=True)
            replace(FIRST_WORKERS, operation.encode())
            return 0
        if time.monotonic() > end:
            return 1
        time.sleep(PAUSE_S)
    return 0


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
