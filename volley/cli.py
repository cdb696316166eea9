"""The command `volley`: reads the command line, then does one thing."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec

from payload.errors import UserError
from volley.arguments import PAYLOAD_VERBS, parser
from volley.stack import Stack

LEAVES = {
    "submit": "what the head has whole, it queues; volley submit again does no harm",
    "stop": "the head stops {name} all the same; volley status shows it",
    "resume": "the head queues {name} all the same; volley status shows it",
    "logs": "nothing has stopped on the cluster; volley stop NAME would stop an experiment",
    "pull": "what has arrived is kept; volley pull {name} takes the rest",
    "start": "Azure starts the head all the same; volley start again waits for it",
    "sleep": "the head falls asleep all the same; volley start wakes it up",
    "ui": "the tunnel is closed, the cluster works on",
}
"""What Ctrl-C leaves, by verb."""
WORKS_ON = "the cluster works on"


def main(argv: list[str] | None = None) -> int:
    """Runs one verb; returns the exit code: 2 after a UserError, which is one line."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] in PAYLOAD_VERBS:
        return _payload(arguments)
    known = parser()
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(known)
    verb, name = "", None
    try:
        options = known.parse_args(arguments)
        verb, name = options.verb, getattr(options, "name", None)
        return VERBS[verb](options)
    except UserError as error:
        print(f"volley: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\nvolley: {LEAVES.get(verb, WORKS_ON).format(name=name)}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # volley status | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _payload(arguments: list[str]) -> int:
    """Hands over to python -m payload, in this process."""
    if find_spec("ray") is None:
        print("volley: Ray is not installed. Next: make .venv/payload", file=sys.stderr)
        return 2
    from payload.cli import main as payload

    return payload(arguments)


def _submit(options: argparse.Namespace) -> int:
    from volley.submit import submit

    stack, name = Stack(options.stack), options.name
    return submit(stack, options.experiment, name, options.now, options.as_json)


def _status(options: argparse.Namespace) -> int:
    from volley.status import status

    return status(Stack(options.stack), options.watch, options.as_json, options.all)


def _cost(options: argparse.Namespace) -> int:
    from volley.cost import cost

    return cost(Stack(options.stack), options.as_json)


def _logs(options: argparse.Namespace) -> int:
    from volley.shell import logs

    boot = ["--boot"] if options.boot else []
    what = ["--unit", options.unit] if options.unit else boot
    return logs(Stack(options.stack), what, options.name, options.follow, options.lines)


def _change(options: argparse.Namespace) -> int:
    from volley.change import change

    return change(Stack(options.stack), options.verb, options.name, options.as_json)


def _pull(options: argparse.Namespace) -> int:
    from volley.pull import pull

    return pull(Stack(options.stack), options.name, options.to, options.as_json)


def _start(options: argparse.Namespace) -> int:
    from volley.start import start

    return start(Stack(options.stack), options.as_json)


def _sleep(options: argparse.Namespace) -> int:
    from volley.start import sleep

    return sleep(Stack(options.stack), options.now, options.as_json)


def _ui(options: argparse.Namespace) -> int:
    from volley.tunnel import ui

    return ui(Stack(options.stack), not options.no_browser)


def _ssh(options: argparse.Namespace) -> int:
    from volley.shell import ssh

    return ssh(Stack(options.stack))


def _exec(options: argparse.Namespace) -> int:
    from volley.shell import execute

    return execute(Stack(options.stack), options.words)


def _completion(options: argparse.Namespace) -> int:
    from volley.completion import completion

    return completion(options.shell)


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "submit": _submit,
    "status": _status,
    "cost": _cost,
    "logs": _logs,
    "stop": _change,
    "resume": _change,
    "pull": _pull,
    "start": _start,
    "sleep": _sleep,
    "ui": _ui,
    "ssh": _ssh,
    "exec": _exec,
    "completion": _completion,
}
"""Each imports what it needs, when it is typed."""
