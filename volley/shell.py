"""`volley ssh`, `exec` and `logs`: what the head shows and runs, at this terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

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
        raise refused("the command to run is missing", "volley exec -- nvidia-smi")
    command = Head(stack).connection.command(words, terminal=sys.stdin.isatty())
    code = subprocess.run(command, check=False).returncode
    if code == LOST:
        raise UserError(
            "the command has ended with 255, or the connection was lost. Next: volley status"
        )
    return code


def logs(
    stack: Stack, what: Sequence[str], name: str | None, follow: bool, lines: int | None
) -> int:
    """Shows the output of an experiment, a unit or the boot.

    Args:
        what: --unit UNIT or --boot; empty for an experiment.
    """
    options = [*(["--follow"] if follow else []), *(["--lines", str(lines)] if lines else [])]
    return Head(stack).show("logs", *([name] if name else what), *options)
