"""Ends processes, and gives a program like xvfb-run time to remove its X server."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

TIDY_UP_S = 1.0
"""Time for programs that run a Python to exit after it has ended; again after SIGTERM."""


def kill(processes: Sequence[psutil.Process]) -> None:
    """Kills processes, Python and Ray first.

    An experiment's `run_under` has started the others. xvfb-run ends with the Python that it
    runs, and only then stops its X server and removes the server's files from /tmp.
    """
    rest = []
    for process in processes:
        if _is_python_or_ray(process):
            with suppress(psutil.Error):
                process.kill()
        else:
            rest.append(process)
    for end_it in (psutil.Process.terminate, psutil.Process.kill):
        end = time.monotonic() + TIDY_UP_S
        while any(_runs(process) for process in rest) and time.monotonic() < end:
            time.sleep(0.02)
        for process in rest:
            with suppress(psutil.Error):
                end_it(process)


def _is_python_or_ray(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        path = Path(process.exe())
        return path == Path(os.path.realpath(sys.executable)) or "ray" in path.parts
    return False


def _runs(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False
