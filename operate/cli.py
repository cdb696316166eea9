"""The command `volley`: reads the command line, then does one thing."""

from __future__ import annotations

import argparse
import os
import sys

from operate.arguments import PAYLOAD_VERBS, parser
from operate.stack import Stack
from payload.errors import UserError

LEAVES = {
    "submit": "what the head has whole, it queues; volley submit again does no harm",
    "stop": "the head stops {name} all the same; volley status shows it",
    "resume": "the head queues {name} all the same; volley status shows it",
    "logs": "nothing has stopped on the cluster; volley stop NAME would stop an experiment",
    "pull": "what has arrived is kept; volley pull {name} takes the rest",
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
        return _run(options)
    except UserError as error:
        print(f"volley: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"\nvolley: {LEAVES.get(verb, WORKS_ON).format(name=name)}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # volley status | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(options: argparse.Namespace) -> int:
    stack = Stack(options.stack)
    match options.verb:
        case "submit":
            from operate.submit import submit

            return submit(stack, options.experiment, options.name, options.now, options.as_json)
        case "status":
            from operate.status import status

            return status(stack, options.watch, options.as_json)
        case "cost":
            from operate.status import cost

            return cost(stack, options.as_json)
        case "logs":
            from operate.shell import logs

            boot = ["--boot"] if options.boot else []
            what = ["--unit", options.unit] if options.unit else boot
            return logs(stack, what, options.name, options.follow, options.lines)
        case "stop" | "resume":
            from operate.change import change

            return change(stack, options.verb, options.name, options.as_json)
        case "pull":
            from operate.pull import pull

            return pull(stack, options.name, options.to, options.as_json)
        case "ui":
            from operate.tunnel import ui

            return ui(stack, not options.no_browser)
        case "ssh":
            from operate.shell import ssh

            return ssh(stack)
        case "exec":
            from operate.shell import execute

            return execute(stack, options.words)
        case _:
            from operate.completion import completion

            return completion(options.shell)


def _payload(arguments: list[str]) -> int:
    """Hands over to python -m payload, in this process."""
    try:
        from payload.cli import main as payload

        return payload(arguments)
    except ModuleNotFoundError as error:
        print(f"volley: {error.name} is not installed. Next: make .venv/payload", file=sys.stderr)
        return 2
