"""Runs Ray's worker under an experiment's run_under, and ends it with its raylet from the start.

A connected worker notices the end of its raylet by itself. One that is still starting would wait
40 s for a raylet that is gone, and its X server with it.

    python start_worker.py default_worker.py ARGUMENTS
"""

import os
import runpy
import sys
import threading
import time
from pathlib import Path

CHECK_EVERY_S = 1.0


def main() -> None:
    raylet = int(os.environ["RAY_RAYLET_PID"])
    threading.Thread(target=_end_with, args=(raylet,), daemon=True).start()
    del sys.argv[0]
    # As if Python had been started with that script.
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


def _end_with(pid: int) -> None:
    while _runs(pid):
        time.sleep(CHECK_EVERY_S)
    os._exit(1)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main()
