"""python -m rehearsal: the declared cluster runs for real on this machine."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from ipaddress import IPv4Network
from pathlib import Path

from rehearsal import paths
from rehearsal.backend import Stage, open_stage
from rehearsal.clean import clean, host_state
from rehearsal.drivers.driver import Driver
from rehearsal.drivers.in_process import InProcess
from rehearsal.rehearsal_lock import RehearsalRunningError, rehearsal_lock
from rehearsal.scenario.outcomes import Timeline
from rehearsal.scenario.scenario import Play, perform
from rehearsal.set_up.host_checks import problems
from rehearsal.set_up.set_up import install_tools, set_up
from tests.project import ROOT

NETWORKS = (
    *("10.42.0.0/24", "10.42.1.0/24", paths.INTERNET, paths.PUBLIC_ADDRESSES),
    *(f"{paths.BLOB_ADDRESS}/32", f"{paths.METADATA_ADDRESS}/32"),
)


def main(arguments: list[str]) -> int:
    """Returns 0, 1 when something was not as expected, 2 when this machine cannot rehearse."""
    options = _parser().parse_args(arguments)
    refused = [] if options.command == "set-up" else problems([IPv4Network(n) for n in NETWORKS])
    if refused and options.command != "clean":
        print("\n".join(f"rehearsal: {line}" for line in refused), file=sys.stderr)
        return 2
    try:
        with rehearsal_lock():
            if options.command == "set-up":
                install_tools(print)
            if options.command == "clean":
                clean()
                return 0
            set_up(print)
            return 0 if options.command == "set-up" else rehearse(_driver(), options.json)
    except RehearsalRunningError as error:
        print(f"rehearsal: {error}", file=sys.stderr)
        return 2


def rehearse(driver: Driver, file: Path) -> int:
    """Plays the play, and leaves this machine as it was."""
    clean()
    before = host_state()
    timeline = Timeline()
    timeline.say(f"driven by {driver.name}")
    try:
        open_stage()
        play = Play(driver, timeline)
        perform(play)
    finally:
        clean()
    left = sorted(host_state() ^ before)
    timeline.play("this machine", "as it was before", lambda: _nothing(left))
    timeline.sum_up(play.not_rehearsed, file)
    return 0 if timeline.ok else 1


def _nothing(left: list[str]) -> str:
    if left:
        raise TimeoutError(", ".join(left))
    return "no interface, rule, mount, cgroup or process is left"


def _driver() -> Driver:
    if shutil.which("pulumi"):
        from rehearsal.drivers.pulumi_cli import WithPulumi

        return WithPulumi(paths.RUN)
    return InProcess(Stage(), paths.RUN / "pulumi.json")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rehearsal", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("set-up", help="install tools, make base image and Python environment")
    play = commands.add_parser("play", help="the whole life of the declared cluster")
    play.add_argument("--json", type=Path, default=ROOT / "results/rehearsal.json")
    commands.add_parser("clean", help="remove all that a rehearsal has left")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main(sys.argv[1:]))
