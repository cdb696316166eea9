"""The command `volley`: reads the command line, then does one thing."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec

from payload.errors import UserError
from volley.arguments import parse, parser
from volley.errors import as_typed, not_installed, refused
from volley.stack import Stack

CONTINUES = {
    "submit": "The upload may be incomplete. It is safe to repeat: volley submit",
    "stop": "{name} will still stop. Check: volley status",
    "resume": "{name} will still be queued. Check: volley status",
    "logs": "Nothing has stopped on the cluster. To stop an experiment: volley stop NAME",
    "pull": "Downloaded files are kept. To download the rest: volley pull {name}",
    "start": "Azure will still start the head. To wait for it: volley start",
    "sleep": "The cluster will still fall asleep. To start it: volley start",
    "dashboard": "The tunnel is closed; the cluster keeps running.",
    **dict.fromkeys(("status", "cost", "ssh", "exec"), "The cluster keeps running."),
}
"""What Ctrl-C does not end, by command; on this machine the command says it itself, or nothing."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code: 2 after a UserError, which is one line."""
    arguments = sys.argv[1:] if argv is None else argv
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser())
    if not arguments:
        parser().print_help()
        return 0
    options = argparse.Namespace(verb="")
    try:
        options = parse(arguments)
        return COMMANDS[options.verb](options)
    except UserError as error:
        print(f"volley: {as_typed(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if options.verb in CONTINUES:
            text = CONTINUES[options.verb].format(name=getattr(options, "name", None))
            print(f"\nvolley: {as_typed(text)}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # volley status | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _train(options: argparse.Namespace) -> int:
    _check_ray()
    from payload.commands.train import train

    return train(options)


def _tune(options: argparse.Namespace) -> int:
    _check_ray()
    from payload.commands.tune import tune

    return tune(options)


def _evaluate(options: argparse.Namespace) -> int:
    _check_ray()
    from payload.commands.evaluate import evaluate

    return evaluate(options)


def _bench(options: argparse.Namespace) -> int:
    _check_ray()
    from bench.command import bench

    return bench(options)


def _ui(options: argparse.Namespace) -> int:
    if find_spec("mlflow") is None:
        raise not_installed("MLflow", "payload")
    from volley.ui import ui

    ui(options.results, options.port, not options.no_browser)


def _new(options: argparse.Namespace) -> int:
    from volley.new import new

    return new(options.folder)


def _completion(options: argparse.Namespace) -> int:
    from volley.arguments import completion

    return completion(options.shell)


def _pulumi(options: argparse.Namespace) -> int:
    from volley.deploy import deploy

    return deploy(options.verb, options.pulumi)


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
    source = ["--unit", options.unit] if options.unit else boot
    return logs(Stack(options.stack), source, options.name, options.follow, options.lines)


def _stop_or_resume(options: argparse.Namespace) -> int:
    from volley.submit import stop_or_resume

    return stop_or_resume(Stack(options.stack), options.verb, options.name, options.as_json)


def _pull(options: argparse.Namespace) -> int:
    from volley.pull import pull

    return pull(Stack(options.stack), options.name, options.to, options.as_json)


def _start(options: argparse.Namespace) -> int:
    if options.name is not None:
        raise refused(
            "start starts the cluster, not an experiment", f"volley resume {options.name}"
        )
    from volley.start import start

    return start(Stack(options.stack), options.as_json)


def _sleep(options: argparse.Namespace) -> int:
    from volley.start import sleep

    return sleep(Stack(options.stack), options.now, options.as_json)


def _dashboard(options: argparse.Namespace) -> int:
    from volley.dashboard import dashboard

    ports = {"mlflow": options.port, "dashboard": options.ray_port}
    return dashboard(Stack(options.stack), ports, not options.no_browser)


def _ssh(options: argparse.Namespace) -> int:
    from volley.shell import ssh

    return ssh(Stack(options.stack))


def _exec(options: argparse.Namespace) -> int:
    from volley.shell import execute

    return execute(Stack(options.stack), options.words)


def _check_ray() -> None:
    if find_spec("ray") is None:
        raise not_installed("Ray", "payload")


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "train": _train,
    "tune": _tune,
    "evaluate": _evaluate,
    "ui": _ui,
    "bench": _bench,
    "new": _new,
    "completion": _completion,
    "up": _pulumi,
    "down": _pulumi,
    "status": _status,
    "cost": _cost,
    "start": _start,
    "sleep": _sleep,
    "dashboard": _dashboard,
    "ssh": _ssh,
    "exec": _exec,
    "submit": _submit,
    "logs": _logs,
    "stop": _stop_or_resume,
    "resume": _stop_or_resume,
    "pull": _pull,
}
"""Each imports what it needs when it is typed."""
