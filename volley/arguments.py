"""The commands of `volley` and their options, in two groups."""

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import payload
from bench.arguments import add_bench
from payload.command_line import Parser
from payload.commands.arguments import (
    add_convert,
    add_evaluate,
    add_export,
    add_overrides,
    add_plot,
    add_results,
    add_run,
    add_runs,
    add_train,
    add_tune,
)
from volley.ports import JUPYTER_PORT, TENSORBOARD_PORT, UI_PORT
from volley.stack import Stack

PULUMI = {"up": "up", "down": "destroy"}
"""Commands that take pulumi's options, with pulumi's names of the commands."""
RAY_PORT = 8265
WORDS = """\
`stop` and `resume` act on an experiment, `start` and `sleep` on the cluster. On this machine
Ctrl-C stops a training after a checkpoint, and --resume continues it.

volley COMMAND --help shows the options of a command."""
SHELLS = ("bash", "zsh", "fish")


@dataclass
class Group:
    """Commands under one title of the help."""

    title: str
    commands: Any
    """argparse's commands, those of all groups."""
    lines: list[str] = field(default_factory=list)

    def add_parser(self, name: str, **options: Any) -> Any:
        self.lines.append(f"  {name:<11} {options['help']}")
        return self.commands.add_parser(name, **options)

    def __str__(self) -> str:
        return "\n".join((f"{self.title}:", *self.lines))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Returns the command, `verb`, and its options.

    Raises:
        UserError: They cannot be used.
    """
    if arguments and arguments[0] in PULUMI and not {"-h", "--help"} & set(arguments):
        return argparse.Namespace(verb=arguments[0], pulumi=arguments[1:])
    if arguments and arguments[0] in ("run", "submit"):
        # argparse would mix the script's options with its own.
        end = arguments.index("--") if "--" in arguments else len(arguments)
        options: argparse.Namespace = parser().parse_args(arguments[:end])
        options.script_params = list(arguments[end + 1 :])
    else:
        options = parser().parse_args(arguments)
    return options


def parser() -> Parser:
    result = Parser(
        prog="volley",
        usage="volley COMMAND [OPTION ...]",
        description="Trains agents with RLlib on this machine, and on a Ray cluster on Azure.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    result.add_argument("--version", action="version", version=f"volley {payload.__version__}")
    result.set_defaults(stack=None)
    commands = result.add_subparsers(
        metavar="COMMAND",
        dest="verb",
        required=True,
        parser_class=Parser,
        prog="volley",
        help=argparse.SUPPRESS,
    )
    here, cluster = Group("on this machine", commands), Group("on the cluster", commands)
    _add_here(here)
    _add_machines(cluster)
    _add_experiments(cluster)
    result.epilog = "\n\n".join((str(here), str(cluster), WORDS))
    return result


def _add_here(here: Group) -> None:
    add_train(here)
    add_tune(here)
    add_evaluate(here)
    add_export(here)
    add_plot(here)
    add_run(here)
    add_runs(here)
    add_convert(here)
    ui = here.add_parser(
        "ui",
        help="open MLflow's charts of the runs on this machine, or TensorBoard",
        description="Serves MLflow's pages of the runs in --results on loopback, until Ctrl-C. "
        "For the cluster's MLflow and TensorBoard: volley dashboard; while the head is off, "
        "--from-results shows MLflow of the results account.",
        allow_abbrev=False,
    )
    add_results(ui)
    ui.add_argument(
        "--tensorboard",
        action="store_true",
        help="serve TensorBoard of the event files in --results instead (volley train "
        "--tensorboard writes them)",
    )
    ports = f"default {UI_PORT}, TensorBoard {TENSORBOARD_PORT}"
    ui.add_argument("--port", type=_port, help=f"on 127.0.0.1 ({ports})")
    _add_no_browser(ui)
    ui.add_argument("--stack", metavar="S", help="with --from-results: the Pulumi stack")
    _add_from_results(ui)
    add_bench(here)
    new = here.add_parser(
        "new",
        help="make a project folder: a Pulumi stack and an experiment",
        description="Makes a folder with Pulumi.yaml, a stack and an experiment. There, "
        "volley train and volley up work without a clone of volley.",
        allow_abbrev=False,
    )
    new.add_argument("folder", type=Path, metavar="DIR", help="a new or an empty folder")
    completion = here.add_parser(
        "completion",
        help="print the completion script for bash, zsh or fish",
        description="Prints the completion script: source <(volley completion bash)",
    )
    completion.add_argument("shell", choices=SHELLS)


def _add_machines(cluster: Group) -> None:
    for name, does in (
        ("up", "create or update the cluster and train (pulumi up)"),
        ("down", "delete the cluster, keep the results (pulumi destroy)"),
    ):
        cluster.add_parser(
            name,
            help=does,
            usage=f"volley {name} [OPTION OF PULUMI ...]",
            description=f"Runs pulumi {PULUMI[name]}. Cleans up after an interrupted run first, "
            "and retries while Azure is busy. All options go to pulumi, for example --stack dev "
            "or --yes.",
        )
    status = _add(cluster, "status", "show machines, experiments and cost", as_json=True)
    status.add_argument(
        "-w", "--watch", action="store_true", help="refresh every 2 s, until Ctrl-C"
    )
    status.add_argument(
        "-a",
        "--all",
        action="store_true",
        help="show all experiments, not only the next ten in the queue and the last ten ended",
    )
    _add_from_results(status)
    _add(cluster, "cost", "show what the cluster costs", as_json=True)
    start = _add(cluster, "start", "start the sleeping cluster; needs an Azure login", True)
    start.add_argument("name", nargs="?", help=argparse.SUPPRESS)
    sleep = _add(cluster, "sleep", "save the results, delete the workers, stop the head", True)
    sleep.add_argument(
        "--now",
        action="store_true",
        help="even if experiments are training: they are checkpointed and continue after "
        "volley start",
    )
    dashboard = _add(cluster, "dashboard", "open the cluster's MLflow and Ray's dashboard")
    dashboard.add_argument(
        "--port", type=_port, help=f"MLflow's port on this machine (default {UI_PORT})"
    )
    dashboard.add_argument(
        "--ray-port", type=_port, help=f"the dashboard's port on this machine (default {RAY_PORT})"
    )
    dashboard.add_argument(
        "--tensorboard",
        type=_port,
        nargs="?",
        const=TENSORBOARD_PORT,
        metavar="PORT",
        help="show TensorBoard of the cluster's event files too, on this port of this machine "
        f"(default {TENSORBOARD_PORT})",
    )
    _add_no_browser(dashboard)
    jupyter = _add(
        cluster, "jupyter", "open JupyterLab on the head, with the cluster's environment"
    )
    jupyter.add_argument(
        "--port",
        type=_port,
        default=JUPYTER_PORT,
        help=f"on this machine's 127.0.0.1 (default {JUPYTER_PORT})",
    )
    _add_no_browser(jupyter)
    jupyter.add_argument(
        "--stop", action="store_true", help="end JupyterLab and its kernels; keeps the notebooks"
    )
    _add(cluster, "ssh", "open a shell on the head")
    _add(cluster, "ssh-config", "print an entry for ~/.ssh/config: for ssh, VS Code, JetBrains")
    ray = _add(cluster, "ray", "ask Ray on the head: volley ray -- status (list, memory, ...)")
    ray.add_argument("words", nargs="*", metavar="WORD", help="Ray's command, after --")
    login = _add(cluster, "registry-login", "let the cluster pull private images", as_json=True)
    login.description = "Stores a login to a container registry on the head. Asks for the "
    login.description += "password, or reads it from stdin. An Azure Container Registry needs no "
    login.description += "login: see containerRegistryId."
    login.add_argument("registry", help="the registry's address, for example ghcr.io")
    login.add_argument("--username")
    login.add_argument("--remove", action="store_true", help="remove the login")
    execute = _add(cluster, "exec", "run a command on the head: volley exec -- nvidia-smi")
    execute.add_argument("words", nargs="*", metavar="CMD", help="the command, after --")


def _add_experiments(cluster: Group) -> None:
    _add_submit(cluster)
    logs = _add(cluster, "logs", "show the output of an experiment, a unit or the head's boot")
    source = logs.add_mutually_exclusive_group()
    _add_name(source, nargs="?")
    source.add_argument("--unit", help="a systemd unit of the head: experiments, ray-head, mlflow")
    source.add_argument("--boot", action="store_true", help="the head's boot")
    logs.add_argument("-f", "--follow", action="store_true", help="follow it until Ctrl-C")
    logs.add_argument("--lines", type=_count, metavar="N", help="begin with the last N lines")
    _add_from_results(logs)
    stop = _add(cluster, "stop", "checkpoint and stop an experiment", as_json=True)
    _add_name(stop)
    resume = _add(cluster, "resume", "queue a stopped or failed experiment again", as_json=True)
    _add_name(resume)
    remove = _add(cluster, "rm", "remove an ended experiment from the head's disk", as_json=True)
    remove.description = "Removes an ended experiment, with its log and runs, from the head. "
    remove.description += "The results account keeps what was saved."
    _add_name(remove)
    remove.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    pull = _add(cluster, "pull", "download an experiment's runs", as_json=True)
    _add_name(pull)
    _add_from_results(pull)
    pull.add_argument("--to", type=Path, metavar="DIR", help="folder (default: results/NAME)")


def _add_submit(cluster: Group) -> None:
    submit = _add(cluster, "submit", "queue experiments or scripts", as_json=True)
    submit.usage = "volley submit [OPTION ...] [FILE ...] [-- ARGUMENT ...]"
    submit.description = "Queues experiments or scripts. Options override an experiment's file."
    add = submit.add_argument
    add(
        "files",
        nargs="*",
        metavar="FILE",
        help="experiment or script file (YAML), a Python file, or a pattern ('runs/*.yaml')",
    )
    add_overrides(submit)
    add(
        "--secret",
        action="append",
        default=[],
        dest="secrets",
        metavar="NAME",
        help="pass this environment variable to the driver, without writing it to any "
        "experiment, log or result",
    )
    add("--name", help="its name on the cluster (default: the file's)")
    add(
        "--priority",
        type=_priority,
        metavar="P",
        help="priority among waiting experiments, highest first (-1000 to 1000, default 0)",
    )
    add(
        "--now",
        action="store_true",
        help="start now: checkpoint and requeue the experiments that use the resources",
    )
    add(
        "--dry-run",
        action="store_true",
        help="check everything and list the files that would be sent or left out; send nothing",
    )


def _add(group: Group, name: str, text: str, as_json: bool = False) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = group.add_parser(
        name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False
    )
    command.add_argument("--stack", metavar="S", help="Pulumi stack (default: the selected one)")
    if as_json:
        command.add_argument("--json", action="store_true", dest="as_json", help="print JSON")
    return command


def _add_from_results(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--from-results",
        action="store_true",
        help="read the results account, not the head; the default while the head is off",
    )
    command.add_argument(
        "--results-account",
        metavar="ACCOUNT",
        help="results account to read: name, resource id or address (default: the stack's)",
    )


def _add_name(command: Any, **options: Any) -> None:
    name = command.add_argument("name", metavar="NAME", help="the experiment's name", **options)
    name.completer = experiments


def _add_no_browser(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--no-browser", action="store_true", help="print the address, open nothing"
    )


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 to 999999999")
    return int(text)


def _priority(text: str) -> int:
    if not re.fullmatch(r"-?\d{1,4}", text) or abs(int(text)) > 1000:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from -1000 to 1000")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 0xFFFF:
        raise argparse.ArgumentTypeError(f"{text!r} must be from 1 to 65535")
    return int(text)


def completion(options: argparse.Namespace) -> int:
    """Prints the shell script that completes commands and experiments."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["volley"], shell=options.shell))
    return 0


def experiments(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
    """Returns the names in the last status."""
    from volley.experiments_table import known_names

    return known_names(Stack(parsed_args.stack))
