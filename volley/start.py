"""`volley start` and `volley sleep`: the cluster wakes up and falls asleep.

The VM of a sleeping head is deallocated; only Azure itself can start it.
"""

import argparse
import sys
import time
from importlib.util import find_spec

from head.queue.record import ENDED
from volley.errors import not_installed, refused, sent
from volley.head import Head
from volley.sleeping_head import remember_sleep
from volley.ssh import Connection, UnreachableError
from volley.stack import Outputs, Stack
from volley.tables import duration, in_words, show

BOOT_S = 600.0
"""How long a running VM may take until it answers over SSH."""
PAUSE_S = 2.0


def start(options: argparse.Namespace) -> int:
    """Starts the head if it is not running; shows the experiments when it answers.

    Raises:
        UserError: No login, no permission, no capacity, or no answer.
    """
    if options.name is not None:
        raise refused(
            "start starts the cluster, not an experiment", f"volley resume {options.name}"
        )
    stack = Stack(options.stack)
    outputs = stack.outputs()
    started = _start_machine(outputs)
    _wait_for_ssh(outputs)
    answer = Head(stack).ask("status")
    if (answer.get("sleep") or {}).get("going"):
        raise refused("the cluster is falling asleep now", "volley start, in a minute")
    remember_sleep(outputs, None)
    experiments = [record for record in answer["experiments"] if record["state"] not in ENDED]
    first = "The head has started." if started else "The head is already running."
    lines = [in_words(record) for record in experiments]
    nothing = ["Nothing is queued. Next: volley submit experiments/pong.yaml"]
    result = {"started": started, "experiments": experiments}
    show(options.as_json, result, first, *(lines or nothing))
    return 0


def sleep(options: argparse.Namespace) -> int:
    """Lets the cluster save its results and sleep, now or if nothing is training.

    Raises:
        UserError: The head refuses.
    """
    head = Head(Stack(options.stack))
    sent.set()
    answer = head.ask("sleep", *(["--now"] if options.now else []))
    remember_sleep(head.outputs, time.time())
    text = "The cluster saves its results and falls asleep. To wake it up: volley start"
    show(options.as_json, answer, text)
    return 0


def _start_machine(outputs: Outputs) -> bool:
    """Returns whether the machine had to be started."""
    if find_spec("azure.identity") is None:
        raise not_installed("azure-identity", "infra")
    from volley.head_machine import head_machine

    machine = head_machine(outputs.head_id)
    if machine.is_running():
        return False
    # ssh may not have noticed that the previous connection is lost.
    Connection(outputs).close()
    progress = _Progress("Azure is starting the head")
    sent.set()
    machine.start(progress.show)
    progress.show()
    return True


def _wait_for_ssh(outputs: Outputs) -> None:
    deadline = time.monotonic() + BOOT_S
    progress = _Progress("The head is booting")
    while True:
        try:
            Connection(outputs).open()
            return
        except UnreachableError:
            if time.monotonic() > deadline:
                raise refused(
                    f"{outputs.login}: the head is running but has not answered for "
                    f"{duration(BOOT_S)}; your address may not be in adminCidr",
                    "pulumi config get adminCidr",
                ) from None
        progress.show()
        time.sleep(PAUSE_S)


class _Progress:
    """Prints to stderr how long something has taken so far."""

    def __init__(self, activity: str) -> None:
        self._activity, self._begun = activity, time.monotonic()

    def show(self) -> None:
        passed = duration(time.monotonic() - self._begun)
        print(f"{self._activity} ({passed}) ...", file=sys.stderr, flush=True)
