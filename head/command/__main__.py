"""volley-head, the head's command. A verb prints one JSON object; `logs`, `files`, `ray` stream.

Exit code 2: the request is refused, and {"error", "next"} gives the reason and what to type. Every
verb can be repeated. Needs the standard library only: Ray alone would take seconds to import.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from ..cluster_settings import read_settings
from ..disk import check_space
from ..files import replace_json
from ..machine import present_moment
from ..paths import SLEEP_REQUEST
from ..queue.cluster_state import read_cluster_state
from ..queue.record import AT_WORK, Record
from ..queue.store import RefusedError, Store
from ..sleep.idle import in_jupyter
from . import files_and_logs, status
from .jupyter import jupyter
from .ray_command import ray
from .registry_login import registry_login
from .removal import rm
from .secrets import accept_secrets, remove_secrets, secrets
from .submit import Submission, submit
from .tensorboard import tensorboard

STOPS_WITHIN_S = 180.0
"""RAY_JOB_STOP_WAIT_TIME_S, and a margin for the payload's end."""
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

    def verb(name: str, function: Callable[[Store, Any], Any], of_experiment: bool = True) -> Any:
        verb_parser = verbs.add_parser(name, allow_abbrev=False)
        verb_parser.set_defaults(verb=function)
        if of_experiment:
            verb_parser.add_argument("name")
        return verb_parser

    add = verb("submit", _submit)
    add.add_argument("--now", action="store_true")
    add.add_argument("--replace", action="store_true")
    add.add_argument("--priority", type=int)
    add.add_argument("--secrets", action="store_true")
    verb("secrets", secrets)
    verb("status", status.status, of_experiment=False).add_argument("--name")
    verb("stop", _stop)
    verb("resume", _resume)
    verb("rm", rm).add_argument("--look", action="store_true")
    verb("wait", _wait).add_argument("--timeout", type=float, default=600.0)
    verb("sleep", _sleep, of_experiment=False).add_argument("--now", action="store_true")
    logs = verb("logs", files_and_logs.logs, of_experiment=False)
    logs.add_argument("name", nargs="?")
    logs.add_argument("--unit")
    logs.add_argument("--boot", action="store_true")
    logs.add_argument("--follow", action="store_true")
    logs.add_argument("--lines", type=int, default=100)
    verb("manifest", files_and_logs.manifest)
    verb("files", files_and_logs.files)
    verb("jupyter", jupyter, of_experiment=False)
    verb("ray", ray, of_experiment=False).add_argument("words", nargs="*")
    login = verb("registry-login", registry_login, of_experiment=False)
    login.add_argument("registry")
    verb("tensorboard", tensorboard, of_experiment=False).add_argument("--port", type=int)
    return parser


def _submit(store: Store, options: argparse.Namespace) -> dict[str, Any]:
    check_space()
    how = Submission(options.name, options.now, options.replace, options.priority)

    def change_secrets(is_another: bool) -> None:
        if options.secrets:
            accept_secrets(options.name, is_another)
        elif is_another:
            remove_secrets(options.name)

    earlier = store.find(how.name)
    record = submit(store, sys.stdin.buffer, how, change_secrets)
    # The experiment that it replaces writes its checkpoint first.
    _until(store, record.name, lambda now: now.submitted >= record.submitted)
    answer = _short(store, store.get(record.name))
    if earlier is not None and earlier.over and earlier.key != record.key:
        by, runs = earlier.submitted_by, earlier.key
        answer["replaced"] = {"state": earlier.state, "by": by, "runs": runs}
    return answer


def _stop(store: Store, options: argparse.Namespace) -> dict[str, Any]:
    record = store.stop(options.name)
    return _short(store, _until(store, record.name, lambda now: now.over))


def _resume(store: Store, options: argparse.Namespace) -> dict[str, Any]:
    check_space()
    return _short(store, store.resume(options.name))


def _wait(store: Store, options: argparse.Namespace) -> dict[str, Any]:
    """Waits until an experiment trains, queues behind others, has ended or failed once."""

    def settled(now: Record) -> bool:
        waits = now.state == "QUEUED" and now.reason and _before(store, now)
        failed = now.not_before and not now.away  # What is away may come back meanwhile.
        return bool(now.state in AT_WORK or now.over or failed or waits)

    record = _until(store, options.name, settled, options.timeout)
    return {**_short(store, record), "reason": record.reason, "before": _before(store, record)}


def _sleep(store: Store, options: argparse.Namespace) -> dict[str, Any]:
    """Leaves a request for the next run of head.sleep."""
    settings = read_settings()
    if settings is None:
        raise RefusedError("the cluster's settings have not arrived yet", "volley up")
    if settings.scaling == "cpu":
        raise RefusedError(
            "a cluster with scaling: cpu never sleeps", "volley down, to remove it (results stay)"
        )
    users = [record.name for record in store.records() if not record.over]
    drivers = read_cluster_state().drivers
    users += [f"{drivers} Ray jobs of other programs"] if drivers else []
    users += filter(None, [in_jupyter()])
    if users and not options.now:
        raise RefusedError(f"still running or queued: {', '.join(users)}", "volley sleep --now")
    now = present_moment()
    request = {"boot": now.boot, "booted": now.booted, "time": now.time, "now": options.now}
    try:
        replace_json(SLEEP_REQUEST, request)
    except FileNotFoundError:
        raise RefusedError("the head is still starting", "volley sleep") from None
    return {"sleeps": True, "now": options.now}


def _until(
    store: Store, name: str, true: Callable[[Record], bool], timeout_s: float = STOPS_WITHIN_S
) -> Record:
    end = time.monotonic() + timeout_s
    while not true(record := store.get(name)) and time.monotonic() < end:
        time.sleep(POLL_S)
    return record


def _short(store: Store, record: Record) -> dict[str, Any]:
    position = status.positions(store.records()).get(record.name)
    return {"name": record.name, "state": record.state, "position": position}


def _before(store: Store, record: Record) -> list[str]:
    """Returns the experiments that a queued experiment waits for."""
    others = [other for other in store.records() if not other.over and other.name != record.name]
    return [other.name for other in others if other.live or other.turn < record.turn]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
