"""The queue as a service.

Its whole state is in the experiments' folders, so it may be killed and started again at any time.
SIGTERM makes every job write a checkpoint; the next start continues them. SIGHUP loads a new
version of this package and leaves the jobs alone, and so does systemd when it restarts a queue that
hangs (WatchdogSec=).
"""

import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress

from .queue import Queue
from .ray_api import RayAwayError, RayCluster
from .store import Store

POLL_S = 1.0
CLOSING_S = 100.0
"""systemd kills what is left after TimeoutStopSec."""


def main() -> int:
    stop, reload = threading.Event(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, lambda *_: reload.set())
    queue = Queue(Store(), RayCluster())
    problem = ""
    stopping_since = 0.0
    while True:
        tell_systemd("WATCHDOG=1")
        if not (stop.is_set() or reload.is_set()) and queue.is_quiet():
            stop.wait(POLL_S)
            continue
        try:
            trains, answer = queue.step(closing=stop.is_set()), ""
        except RayAwayError as error:
            # Jobs end with Ray.
            trains, answer = False, f"Ray does not answer: {error}"
        except OSError as error:  # The disk is full.
            trains, answer = True, f"the queue cannot continue: {error}"
        if answer != problem:
            problem = answer
            print(answer or "the queue continues", flush=True)
        if stop.is_set():
            stopping_since = stopping_since or time.monotonic()
            if not trains or time.monotonic() - stopping_since > CLOSING_S:
                return 0
            time.sleep(POLL_S)
        elif reload.is_set() and not queue.is_starting:
            print("loading the new version of the queue", flush=True)
            os.execv(sys.executable, [sys.executable, "-m", "head.queue"])
        stop.wait(POLL_S)


def tell_systemd(state: str) -> None:
    """Sends a message of sd_notify(3), if systemd has started this process and listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(state.encode(), address.replace("@", "\0", 1))


if __name__ == "__main__":
    sys.exit(main())
