"""volley's verbs and their options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from payload.parser import Parser
from volley.completion import SHELLS, experiments

PAYLOAD_VERBS = {
    "train": "train on this machine, as python -m payload train",
    "tune": "search settings on this machine",
    "evaluate": "play a checkpoint's policy on this machine",
    "bench": "measure this trainer on this machine",
}
"""What `python -m payload` does; its `ui` shows the runs of this machine and stays there."""


def parser() -> Parser:
    """Returns volley's command line."""
    found = Parser(
        prog="volley",
        description="Operates the cluster that `pulumi up` has made, and trains on this machine.",
        allow_abbrev=False,
    )
    found.set_defaults(stack=None)
    verbs = found.add_subparsers(
        title="commands", metavar="COMMAND", dest="verb", required=True, parser_class=Parser
    )
    _add_experiments(verbs)
    _add_cluster(verbs)
    for verb, text in PAYLOAD_VERBS.items():
        verbs.add_parser(verb, help=text, add_help=False)
    completion = verbs.add_parser("completion", help="print what completes volley in a shell")
    completion.add_argument("shell", choices=SHELLS)
    return found


def _add_experiments(verbs: Any) -> None:
    submit = _add(verbs, "submit", "queue an experiment on the cluster", as_json=True)
    submit.add_argument("experiment", type=Path, help="experiment file (YAML)")
    submit.add_argument("--name", help="its name on the cluster (default: the file's)")
    submit.add_argument(
        "--now", action="store_true", help="checkpoint and queue again what is in its way"
    )
    logs = _add(verbs, "logs", "show the output of an experiment, a unit or the head's boot")
    what = logs.add_mutually_exclusive_group(required=True)
    _add_name(what, nargs="?")
    what.add_argument("--unit", help="a systemd unit of the head: experiments, ray-head, mlflow")
    what.add_argument("--boot", action="store_true", help="the head's boot")
    logs.add_argument("-f", "--follow", action="store_true", help="follow it until Ctrl-C")
    logs.add_argument("--lines", type=_count, metavar="N", help="begin with the last N lines")
    stop = _add(verbs, "stop", "checkpoint and stop an experiment", as_json=True)
    _add_name(stop)
    resume = _add(verbs, "resume", "queue a stopped or failed experiment again", as_json=True)
    _add_name(resume)
    pull = _add(verbs, "pull", "bring an experiment's runs to this machine", as_json=True)
    _add_name(pull)
    pull.add_argument("--to", type=Path, metavar="DIR", help="folder (default: results/NAME)")


def _add_cluster(verbs: Any) -> None:
    status = _add(verbs, "status", "show machines, experiments and cost", as_json=True)
    status.add_argument("-w", "--watch", action="store_true", help="again every 2 s, until Ctrl-C")
    status.add_argument(
        "-a",
        "--all",
        action="store_true",
        help="also experiments far back in the queue or ended long ago",
    )
    _add(verbs, "cost", "show what the cluster costs", as_json=True)
    _add(verbs, "start", "start the head that sleeps; needs a login at Azure", as_json=True)
    sleep = _add(verbs, "sleep", "save all and let the head sleep", as_json=True)
    sleep.add_argument(
        "--now", action="store_true", help="although something trains; it continues after a start"
    )
    ui = _add(verbs, "ui", "open MLflow and Ray's dashboard through a tunnel")
    ui.add_argument("--no-browser", action="store_true", help="print the addresses, open nothing")
    _add(verbs, "ssh", "open a shell on the head")
    execute = _add(verbs, "exec", "run a command on the head: volley exec -- nvidia-smi")
    execute.add_argument("words", nargs="*", metavar="CMD", help="the command, after --")


def _add(verbs: Any, name: str, text: str, as_json: bool = False) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False
    )
    verb.add_argument("--stack", metavar="S", help="of Pulumi (default: the selected one)")
    if as_json:
        verb.add_argument("--json", action="store_true", dest="as_json", help="for scripts")
    return verb


def _add_name(verb: Any, **options: Any) -> None:
    name = verb.add_argument("name", metavar="NAME", help="of the experiment", **options)
    name.completer = experiments


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 on")
    return int(text)
