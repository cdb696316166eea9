"""`volley start` and `volley sleep`: the head wakes up and falls asleep.

A head that sleeps is a deallocated VM. To start it is the one verb that asks Azure itself.
"""

from __future__ import annotations

import logging
import os
import sys
import time

from volley.errors import refused
from volley.head import Head
from volley.ssh import Connection, UnreachableError
from volley.stack import Outputs, Stack
from volley.tables import duration, show, stands

ENDED = ("FINISHED", "FAILED", "STOPPED")
BOOT_S = 600.0
"""Until the SSH of a VM that runs must have answered."""
PAUSE_S = 2.0


def start(stack: Stack, as_json: bool) -> int:
    """Starts the head if it does not run; shows what is queued when it answers.

    Raises:
        UserError: No login, no permission, no machine of the size, or no answer.
    """
    outputs = stack.outputs()
    started = _start_machine(outputs, stack)
    _wait_for_ssh(outputs)
    answer = Head(stack).ask("status")
    if (answer.get("sleep") or {}).get("going"):
        raise refused("the head is falling asleep at this moment", "volley start, in a minute")
    experiments = [one for one in answer["experiments"] if one["state"] not in ENDED]
    first = "The head has started." if started else "The head runs already."
    lines = [stands(one) for one in experiments]
    nothing = ["Nothing is queued. Next: volley submit experiments/pong.yaml"]
    found = {"started": started, "experiments": experiments}
    show(as_json, found, first, *(lines or nothing))
    return 0


def sleep(stack: Stack, now: bool, as_json: bool) -> int:
    """Lets the head save and sleep, at once or when nothing trains.

    Raises:
        UserError: The head refuses.
    """
    answer = Head(stack).ask("sleep", *(["--now"] if now else []))
    show(as_json, answer, "The head saves and falls asleep. Next: volley start wakes it up")
    return 0


def _start_machine(outputs: Outputs, stack: Stack) -> bool:
    """Returns whether the machine had to be started."""
    try:
        from volley.arm import HeadMachine
        from volley.azure_login import credential
    except ImportError as error:
        raise refused(f"{error.name} is not installed", "make .venv/infra") from None
    # What a credential logs, its error says again.
    logging.getLogger("azure").addHandler(logging.NullHandler())
    head_id = stack.head_id(outputs)
    login = credential(os.environ, subscription=head_id.split("/")[2])
    machine = HeadMachine(head_id, login, os.environ)
    if machine.runs():
        return False
    # ssh may take the connection of before for alive.
    Connection(outputs).close()
    say = _Progress("Azure starts the head")
    machine.start(say.waiting)
    say.waiting()
    return True


def _wait_for_ssh(outputs: Outputs) -> None:
    deadline = time.monotonic() + BOOT_S
    say = _Progress("The head boots")
    while True:
        try:
            Connection(outputs).open()
            return
        except UnreachableError:
            if time.monotonic() > deadline:
                raise refused(
                    f"{outputs.login}: the head runs, but does not answer after "
                    f"{duration(BOOT_S)}; adminCidr may not include your address",
                    "pulumi config get adminCidr",
                ) from None
        say.waiting()
        time.sleep(PAUSE_S)


class _Progress:
    """Says on stderr for how long something has lasted."""

    def __init__(self, what: str) -> None:
        self._what, self._begun = what, time.monotonic()

    def waiting(self) -> None:
        lasted = duration(time.monotonic() - self._begun)
        print(f"{self._what} ({lasted}) ...", file=sys.stderr, flush=True)
