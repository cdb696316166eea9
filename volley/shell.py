"""`volley ssh`, `exec` and `logs`: the head at this terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from head.queue.record import LIVE
from payload.errors import UserError
from volley.errors import refused
from volley.head import Head
from volley.ssh import LOST
from volley.stack import Stack


def ssh(stack: Stack) -> int:
    """Becomes a shell on the head."""
    command = Head(stack).connection.command([], terminal=True)
    os.execvp(command[0], command)


def execute(stack: Stack, words: Sequence[str]) -> int:
    """Runs a command on the head; returns its exit code.

    Raises:
        UserError: The connection was lost.
    """
    if not words:
        raise refused("no command given", "volley exec -- nvidia-smi")
    command = Head(stack).connection.command(words, terminal=sys.stdin.isatty())
    code = subprocess.run(command, check=False).returncode
    if code == LOST:
        raise UserError(
            "The command exited with 255, or the SSH connection broke. Next: volley status"
        )
    return code


def logs(
    stack: Stack, source: Sequence[str], name: str | None, follow: bool, lines: int | None
) -> int:
    """Shows the output of an experiment, a unit or the boot.

    Args:
        source: --unit UNIT or --boot; empty for an experiment.
        name: The experiment's; None is the running one.

    Raises:
        UserError: No or several experiments are running, and no log was named.
    """
    head = Head(stack)
    options = [*(["--follow"] if follow else []), *(["--lines", str(lines)] if lines else [])]
    return head.show("logs", *(source or [name or _running(head)]), *options)


def _running(head: Head) -> str:
    experiments = head.ask("status")["experiments"]
    running = [record["name"] for record in experiments if record["state"] in LIVE]
    if len(running) == 1:
        return str(running[0])
    listed = f"running: {', '.join(running)}" if running else "none is running"
    raise UserError(
        f"Which log? Give an experiment ({listed}; all: volley status), --unit UNIT or --boot"
    )
