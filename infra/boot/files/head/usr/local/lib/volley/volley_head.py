"""The head's command. Each verb prints one JSON object; `logs` and `files` print what they find.

Exit code 2: what was asked is refused, and {"error", "next"} says why and what to type. Every verb
can be repeated. Needs the standard library only: Ray alone would take seconds to import.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import head_files
import head_status
from cluster_settings import read_settings
from experiment_record import Record, replace_text
from experiment_store import RefusedError, Store
from experiment_submit import submit
from places import CLUSTER, SLEEP_REQUEST
from sleep_state import boot_id, read_json

STOPS_WITHIN_S = 180.0
"""RAY_JOB_STOP_WAIT_TIME_S, and some for what the payload does at its end."""
POLL_S = 0.2


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        answer = options.verb(Store(), options)
    except RefusedError as error:
        print(json.dumps({"error": str(error), "next": error.next_command}))
        return 2
    except BrokenPipeError:  # The laptop has gone away.
        return 1
    if answer is not None:
        print(json.dumps(answer))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="volley-head", allow_abbrev=False)
    verbs = parser.add_subparsers(required=True)

    def verb(name: str, function: Callable[[Store, Any], Any], of_one: bool = True) -> Any:
        one = verbs.add_parser(name, allow_abbrev=False)
        one.set_defaults(verb=function)
        if of_one:
            one.add_argument("name")
        return one

    add = verb("submit", _submit)
    add.add_argument("--now", action="store_true")
    add.add_argument("--replace", action="store_true")
    verb("status", head_status.status, of_one=False).add_argument("--name")
    verb("stop", _stop)
    verb("resume", _resume)
    verb("wait", _wait).add_argument("--timeout", type=float, default=600.0)
    verb("sleep", _sleep, of_one=False).add_argument("--now", action="store_true")
    logs = verb("logs", head_files.logs, of_one=False)
    logs.add_argument("name", nargs="?")
    logs.add_argument("--unit")
    logs.add_argument("--boot", action="store_true")
    logs.add_argument("--follow", action="store_true")
    logs.add_argument("--lines", type=int, default=100)
    verb("manifest", head_files.manifest)
    verb("files", head_files.files)
    return parser


def _submit(store: Store, options: argparse.Namespace) -> dict[str, Any]:
    record = submit(store, options.name, sys.stdin.buffer, options.now, options.replace)
    # One that it replaces writes its checkpoint first.
    _until(store, record.name, lambda now: now.submitted >= record.submitted)
    return _short(store, store.get(record.name))


def _stop(store: Store, options: argparse.Namespace) -> dict[str, Any]:
    record = store.stop(options.name)
    return _short(store, _until(store, record.name, lambda now: now.over))


def _resume(store: Store, options: argparse.Namespace) -> dict[str, Any]:
    return _short(store, store.resume(options.name))


def _wait(store: Store, options: argparse.Namespace) -> dict[str, Any]:
    """Waits until an experiment trains, waits for others, or has ended or failed a first time."""

    def settled(now: Record) -> bool:
        waits = now.state == "QUEUED" and now.reason and _before(store, now)
        return bool(now.state == "TRAINING" or now.over or now.not_before or waits)

    record = _until(store, options.name, settled, options.timeout)
    return {**_short(store, record), "reason": record.reason, "before": _before(store, record)}


def _sleep(store: Store, options: argparse.Namespace) -> dict[str, Any]:
    """Asks for what infra/boot/sleep does; its next run obeys."""
    settings = read_settings()
    if settings is None:
        raise RefusedError("the head does not know its scale set yet", "make up")
    if settings.scaling == "cpu":
        raise RefusedError("scaling is cpu: such a cluster does not sleep", "pulumi destroy")
    trains = [one.name for one in store.records() if not one.over]
    drivers = (read_json(CLUSTER) or {}).get("drivers")
    trains += [f"{drivers} Ray jobs of other programs"] if drivers else []
    if trains and not options.now:
        raise RefusedError(f"not over yet: {', '.join(trains)}", "volley sleep --now")
    request = {"boot": boot_id(), "time": time.time(), "now": options.now}
    replace_text(SLEEP_REQUEST, json.dumps(request))
    return {"sleeps": True, "now": options.now}


def _until(
    store: Store, name: str, true: Callable[[Record], bool], timeout_s: float = STOPS_WITHIN_S
) -> Record:
    end = time.monotonic() + timeout_s
    while not true(record := store.get(name)) and time.monotonic() < end:
        time.sleep(POLL_S)
    return record


def _short(store: Store, record: Record) -> dict[str, Any]:
    position = head_status.positions(store.records()).get(record.name)
    return {"name": record.name, "state": record.state, "position": position}


def _before(store: Store, record: Record) -> list[str]:
    """Returns the experiments that an experiment in the queue waits for."""
    records = [one for one in store.records() if not one.over and one.name != record.name]
    return [one.name for one in records if one.live or one.order < record.order]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
