"""python -m rehearsal: the declared cluster runs for real on this machine."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from ipaddress import IPv4Network
from pathlib import Path

from rehearsal import place
from rehearsal.driver import Driver
from rehearsal.host_checks import problems
from rehearsal.in_process import InProcess
from rehearsal.leftovers import clean, host_state
from rehearsal.lock import RehearsalRunningError, rehearsal_lock
from rehearsal.play import Play, perform
from rehearsal.set_up import install_tools, set_up
from rehearsal.stage import Stage, open_stage
from rehearsal.timeline import Timeline
from tests.project import ROOT

NETWORKS = (
    *("10.42.0.0/24", "10.42.1.0/24", place.INTERNET, place.PUBLIC_ADDRESSES),
    *(f"{place.BLOB_ADDRESS}/32", f"{place.METADATA_ADDRESS}/32"),
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
        from rehearsal.with_pulumi import WithPulumi

        return WithPulumi(place.RUN)
    return InProcess(Stage(), place.RUN / "pulumi.json")


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
