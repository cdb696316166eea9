"""`volley ssh`, `ssh-config`, `exec`, `ray` and `logs`: the head at this terminal."""

import argparse
import os
import subprocess
import sys

from head.queue.record import LIVE
from payload.errors import UserError
from volley.errors import refused
from volley.head import Head, show_output
from volley.source import Off, source, unread
from volley.ssh import LOST, config_entry
from volley.stack import Stack

WITH_ENVIRONMENT = 'PATH=/opt/volley/venv/bin:$PATH; exec "$@"'
"""Runs a command that finds the cluster's Python first."""


def ssh(options: argparse.Namespace) -> int:
    """Replaces this process with ssh, for a shell on the head."""
    command = Head(Stack(options.stack)).connection.command([], terminal=True)
    os.execvp(command[0], command)


def ssh_config(options: argparse.Namespace) -> int:
    """Prints the head's entry for ~/.ssh/config."""
    stack = Stack(options.stack)
    print(config_entry(stack.outputs(), stack.name), end="")
    return 0


def ray(options: argparse.Namespace) -> int:
    """Shows what Ray on the head answers to one of its own commands."""
    return Head(Stack(options.stack)).show("ray", "--", *options.words)


def execute(options: argparse.Namespace) -> int:
    """Runs a command on the head; returns its exit code.

    Raises:
        UserError: The connection was lost.
    """
    if not options.words:
        raise refused("no command given", "volley exec -- nvidia-smi")
    connection = Head(Stack(options.stack)).connection
    words = ["sh", "-c", WITH_ENVIRONMENT, "sh", *options.words]
    command = connection.command(words, terminal=sys.stdin.isatty())
    code = subprocess.run(command, check=False).returncode
    if code == LOST:
        raise UserError(
            "The command exited with 255, or the SSH connection broke. Next: volley status"
        )
    return code


def logs(options: argparse.Namespace) -> int:
    """Shows the output of an experiment (by default the running one), a unit or the boot.

    Raises:
        UserError: No or several experiments are running, and no log was named.
    """
    head = source(options)
    if isinstance(head, Off):
        return _saved_logs(options, head)
    if options.unit:
        words = ["--unit", options.unit]
    else:
        words = ["--boot"] if options.boot else [options.name or _running(head)]
    words += ["--follow"] if options.follow else []
    words += ["--lines", str(options.lines)] if options.lines else []
    return head.show("logs", *words)


def _saved_logs(options: argparse.Namespace, off: Off) -> int:
    """Shows what the results account has of an experiment's output; it does not grow."""
    if options.unit or options.boot:
        why = off.why or "--from-results"
        raise refused(
            f"{why}: the results account has the output of experiments only", "volley logs NAME"
        )
    try:
        lines = list(off.results().logs(options.name, options.lines))
    except UserError as error:
        raise unread(error, off) from None
    off.say()
    show_output(lines)
    return 0


def _running(head: Head) -> str:
    experiments = head.ask("status")["experiments"]
    running = [record["name"] for record in experiments if record["state"] in LIVE]
    if len(running) == 1:
        return str(running[0])
    listed = f"running: {', '.join(running)}" if running else "none is running"
    raise UserError(
        f"Which log? Give an experiment ({listed}; all: volley status), --unit UNIT or --boot"
    )
