"""The command `volley`: reads the command line, then does one thing."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from payload.errors import TemporaryError, UserError, first_line
from payload.may_pass import may_pass
from volley.arguments import parse, parser
from volley.errors import as_typed, need, selected, sent

ONE_REQUEST = ("stop", "resume", "rm", "start", "sleep")
"""Commands that change something with one request, and set `sent` before it."""
Command = Callable[[argparse.Namespace], int]
CONTINUES = {
    "submit": "The upload may be incomplete. It is safe to repeat: volley submit",
    "stop": "{name} will still stop. Check: volley status",
    "resume": "{name} will still be queued. Check: volley status",
    "logs": "Nothing has stopped on the cluster. To stop an experiment: volley stop NAME",
    "rm": "The head may still remove {name}. Check: volley status",
    "pull": "Downloaded files are kept. To download the rest: volley pull {name}",
    "start": "Azure will still start the head. To wait for it: volley start",
    "sleep": "The cluster will still fall asleep. To start it: volley start",
    "dashboard": "The tunnel is closed; the cluster keeps running.",
    "jupyter": "The tunnel is closed. To stop JupyterLab: volley jupyter --stop",
    **dict.fromkeys(("status", "cost", "ssh", "ray", "exec"), "The cluster keeps running."),
}
"""Messages after Ctrl-C, by command; commands on this machine print their own or none."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code: 2 after a UserError, 75 after what may pass."""
    arguments = sys.argv[1:] if argv is None else argv
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser())
    if not arguments:
        parser().print_help()
        return 0
    options = argparse.Namespace(verb="")
    sent.clear()
    selected.set(None)
    try:
        options = parse(arguments)
        selected.set(getattr(options, "stack", None))
        return COMMANDS[options.verb](options.verb)(options)
    except UserError as error:
        print(f"volley: {as_typed(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if options.verb in CONTINUES:
            text = CONTINUES[options.verb].format(name=getattr(options, "name", None))
            if options.verb in ONE_REQUEST and not sent.is_set():
                text = "Nothing was sent; nothing has changed."
            print(f"\nvolley: {as_typed(text)}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # volley status | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (TemporaryError, OSError) as error:
        if isinstance(error, OSError) and not may_pass(error):
            raise
        print(f"volley: {first_line(error)}", file=sys.stderr)
        return os.EX_TEMPFAIL


def _here(verb: str) -> Command:
    """Imports what a command on this machine needs."""
    if verb not in ("ui", "new", "convert", "completion"):
        need("ray", "Ray")
    match verb:
        case "train":
            from payload.commands.train import train as command
        case "tune":
            from payload.commands.tune import tune as command
        case "run":
            from payload.commands.run_script import run_script as command
        case "bench":
            from bench.command import bench as command
        case "ui":
            need("mlflow", "MLflow")
            from volley.ui import ui as command
        case "convert":
            from payload.commands.convert import convert as command
        case "new":
            from volley.new import new as command
        case _:
            from volley.arguments import completion as command
    return command


def _runs(verb: str) -> Command:
    """Imports what a command on the runs of this machine needs."""
    need("ray", "Ray")
    match verb:
        case "evaluate":
            from payload.commands.evaluate import evaluate as command
        case "export":
            for module in ("onnx", "onnxruntime", "onnxscript"):
                need(module, extra="onnx")
            from payload.commands.export import export as command
        case "plot":
            from payload.commands.plot import plot as command
        case _:
            from payload.commands.runs import runs as command
    return command


def _machines(verb: str) -> Command:
    """Imports what a command on the cluster's machines needs."""
    match verb:
        case "status":
            from volley.status import status as command
        case "cost":
            from volley.cost import cost as command
        case "start":
            from volley.start import start as command
        case "sleep":
            from volley.start import sleep as command
        case "dashboard":
            from volley.dashboard import dashboard as command
        case "jupyter":
            from volley.jupyter import jupyter as command
        case "ssh":
            from volley.shell import ssh as command
        case "registry-login":
            from volley.registry import registry_login as command
        case "ssh-config":
            from volley.shell import ssh_config as command
        case "ray":
            from volley.shell import ray as command
        case "exec":
            from volley.shell import execute as command
        case _:
            from volley.deploy import deploy as command
    return command


def _experiments(verb: str) -> Command:
    """Imports what a command on the cluster's experiments needs."""
    match verb:
        case "submit":
            from volley.submit import submit as command
        case "logs":
            from volley.shell import logs as command
        case "pull":
            from volley.pull import pull as command
        case "rm":
            from volley.remove import remove as command
        case _:
            from volley.submit import stop_or_resume as command
    return command


COMMANDS: dict[str, Callable[[str], Command]] = {
    **dict.fromkeys(("train", "tune", "run", "convert", "ui", "bench", "new", "completion"), _here),
    **dict.fromkeys(("evaluate", "export", "plot", "runs"), _runs),
    **dict.fromkeys(("up", "down", "status", "cost", "start", "sleep"), _machines),
    **dict.fromkeys(
        ("dashboard", "jupyter", "ssh", "ssh-config", "registry-login", "ray", "exec"), _machines
    ),
    **dict.fromkeys(("submit", "logs", "stop", "resume", "pull", "rm"), _experiments),
}
"""Functions that import a command's modules, called only when the command is typed."""
