"""python -m rehearsal: run the declared cluster for real on this machine."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from random import randrange

from payload.experiment import nearest
from rehearsal import addresses
from rehearsal.backend import Backend, open_backend
from rehearsal.clean import clean, host_state
from rehearsal.drivers.driver import Driver
from rehearsal.drivers.in_process import InProcess
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.host_paths import ROOT, RUN
from rehearsal.scenario.acts_of_elastic import run_elastic
from rehearsal.scenario.acts_of_life import run_life
from rehearsal.scenario.acts_of_queue import run_queue
from rehearsal.scenario.acts_of_stacks import run_stacks
from rehearsal.scenario.context import Context
from rehearsal.scenario.outcomes import Outcomes, UnexpectedError
from rehearsal.set_up import set_up
from rehearsal.set_up.host_checks import problems
from rehearsal.set_up.tools import install_tools
from rehearsal.shared_file import RehearsalRunningError, rehearsal_lock
from rehearsal.soak.run_soak import run_soak

Scenario = Callable[[Context, Outcomes], list[str]]
"""Runs its acts in order; returns what was declared and not rehearsed."""
SCENARIOS: dict[str, tuple[Scenario, Path]] = {
    "life": (run_life, Path("results/rehearsal.json")),
    "stacks": (run_stacks, Path("results/rehearsal-stacks.json")),
    "elastic": (run_elastic, Path("results/rehearsal-elastic.json")),
    "queue": (run_queue, Path("results/rehearsal-queue.json")),
}
"""Scenarios by name, each with the file for its outcomes, relative to the project's folder."""


SOAK = Path("results/rehearsal-soak.json")


def main(arguments: list[str]) -> int:
    """Returns 0, 1 if something was not as expected, 2 if this machine cannot rehearse."""
    options = _parser().parse_args(arguments)
    runs = options.command in {"run", "soak"}
    refused = problems([IPv4Network(n) for n in addresses.ALL]) if runs else []
    if refused:
        print("\n".join(f"rehearsal: {line}" for line in refused), file=sys.stderr)
        return 2
    try:
        with rehearsal_lock():
            if options.command == "clean":
                clean()
                return 0
            if options.command == "set-up":
                install_tools()
            set_up()
            if options.command == "set-up":
                return 0
            if options.command == "soak":
                soak = partial(run_soak, seed=options.seed, minutes=options.minutes)
                return rehearse(_driver(), soak, options.json)
            scenario, file = SCENARIOS[options.scenario]
            return rehearse(_driver(), scenario, options.json or ROOT / file)
    except RehearsalRunningError as error:
        print(f"rehearsal: {error}", file=sys.stderr)
        return 2


def rehearse(driver: Driver, scenario: Scenario, file: Path) -> int:
    """Runs a scenario and leaves this machine as it was; returns what `main` returns."""
    clean()
    before = host_state()
    outcomes = Outcomes()
    outcomes.say(f"driven by {driver.name}")
    try:
        open_backend()
        not_rehearsed = scenario(Context(driver), outcomes)
    finally:
        clean()
    outcomes.act("this machine", "as it was before", _same, before, host_state())
    outcomes.sum_up(not_rehearsed, file)
    return 0 if outcomes.ok else 1


def _same(before: frozenset[str], after: frozenset[str]) -> str:
    if before != after:
        raise UnexpectedError(", ".join(sorted(before ^ after)))
    return "no interface, rule, mount, cgroup or process is left"


def _driver() -> Driver:
    if shutil.which("pulumi"):
        return PulumiCli(RUN)
    return InProcess(Backend())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m rehearsal",
        description="Run the declared cluster for real on this machine (root, Linux).",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run",
        help="declare the cluster, train, change the stack and destroy it; "
        "print what was expected and what was seen",
    )
    run.add_argument(
        "scenario",
        nargs="?",
        default="life",
        type=_scenario,
        metavar="SCENARIO",
        help="life (default): one stack from its first `up` to what `destroy` leaves, with "
        "machines that break; stacks: a head without workers, a second life of its results, "
        "existing subnets and an existing MLflow server, a search over settings, a company's "
        "subscription reached through a jump host; elastic: "
        "workers that Ray's autoscaler makes and deletes, and a head that sleeps; queue: three "
        "experiments that share a cluster with faults, operated with `volley`",
    )
    run.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="where to write the outcomes as JSON (default: "
        f"{', '.join(f'{file} for {name}' for name, (_, file) in SCENARIOS.items())})",
    )
    soak = commands.add_parser(
        "soak",
        help="train small experiments for an hour while a fault happens every minute; needs the "
        "pulumi CLI",
    )
    soak.add_argument(
        "--seed",
        type=int,
        default=randrange(10_000),
        metavar="N",
        help="the faults' order (default: any)",
    )
    soak.add_argument(
        "--minutes",
        type=float,
        default=60.0,
        metavar="M",
        help="how long faults happen (default: 60)",
    )
    soak.add_argument(
        "--json",
        type=Path,
        default=ROOT / SOAK,
        metavar="FILE",
        help=f"where to write the outcomes (default: {SOAK})",
    )
    commands.add_parser(
        "set-up",
        help="install missing tools with apt; make the base image and the Python environment",
    )
    commands.add_parser("clean", help="remove everything that a rehearsal has left")
    return parser


def _scenario(name: str) -> str:
    if name not in SCENARIOS:
        allowed = " or ".join(SCENARIOS)
        raise argparse.ArgumentTypeError(f"{name!r}: must be {allowed}{nearest(name, SCENARIOS)}")
    return name


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
