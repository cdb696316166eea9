"""`volley submit`, `stop` and `resume`: experiments and scripts in the head's queue."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from head.queue.record import LIVE
from payload.commands.arguments import overrides
from payload.errors import UserError
from payload.experiment import VARIABLE
from payload.notification import NotifyError, check, in_files, target_of, variable_of
from volley.dry_run import show_dry_run
from volley.errors import as_typed, refused, sent
from volley.head import Head, OnSent
from volley.stack import Stack
from volley.submission import Submission, submissions
from volley.tables import in_words, show

PROGRESS_FROM = 5 * 2**20
"""Bytes; less is sent before anyone could read a progress bar."""


def submit(options: argparse.Namespace) -> int:
    """Checks experiments or scripts, and sends each with the payload to the head.

    Raises:
        UserError: One cannot be used, and nothing is sent; or the head refuses one.
    """
    found = submissions(options.files, options.name, options.script_params, overrides(options))
    for submission in found:
        secret_of_notify(submission)
    if options.dry_run:
        return show_dry_run(found, options.as_json)
    secrets = [secrets_of(submission, options.secrets) for submission in found]
    turn = Turn(options.priority, options.now)
    answers = list(send(Stack(options.stack), found, turn, secrets))
    for note in dict.fromkeys(note for submission in found for note in submission.notes):
        print(note, file=sys.stderr)
    name = found[0].name
    following = f"volley logs {name} -f" if len(found) == 1 else "volley status"
    lines = [line for answer in answers for line in (in_words(answer), *_replaced(answer))]
    # One experiment is an object, as the other verbs print it.
    answer = answers[0] if len(answers) == 1 else {"experiments": answers}
    show(options.as_json, answer, *lines, f"Next: {following}")
    return 0


def _replaced(answer: dict[str, Any]) -> Iterator[str]:
    """Yields a line about an ended experiment of the same name, whose runs are kept."""
    if replaced := answer.get("replaced"):
        by = f", submitted by {replaced['by']}" if replaced["by"] else ""
        yield as_typed(
            f"It replaces an experiment that was {replaced['state']}{by}. To download the runs of "
            f"that one: volley pull {replaced['runs']}"
        )


def secrets_of(submission: Submission, also: Sequence[str] = ()) -> dict[str, str]:
    """Returns the values of an experiment's secrets, from this environment, by name.

    Raises:
        UserError: One is not set, or a cluster does not notify this URL.
    """
    names = dict.fromkeys([*submission.read.secrets, *also])
    for name in names:
        if not VARIABLE.fullmatch(name):
            raise UserError(f"--secret {name}: must be letters, digits and _, no digit first")
        if not os.environ.get(name):
            raise refused(f"--secret {name}: is not set in the environment", f"export {name}=...")
    return {name: os.environ[name] for name in names} | secret_of_notify(submission)


def secret_of_notify(submission: Submission) -> dict[str, str]:
    """Returns the variable with what an experiment's file does not have: the URL to be notified.

    Raises:
        UserError: It is not set, or a cluster does not notify this URL.
    """
    notify = submission.read.notify
    if notify is None:
        return {}
    name = variable_of(notify)
    try:
        target = target_of(notify, os.environ)
        check(target, on_cluster=True)
    except NotifyError as error:
        raise refused(f"notify: {error}", f"export {name}=..." if name else "--notify") from None
    sent = variable_of(in_files(notify))
    return {sent: target} if sent else {}


@dataclass(frozen=True)
class Turn:
    """When an experiment is served."""

    priority: int | None = None
    now: bool = False

    @property
    def words(self) -> list[str]:
        """volley-head's options."""
        priority = [] if self.priority is None else ["--priority", str(self.priority)]
        return [*priority, *(["--now"] if self.now else [])]


def send(
    stack: Stack,
    found: Sequence[Submission],
    turn: Turn,
    secrets: Sequence[dict[str, str]] = (),
) -> Iterator[dict[str, Any]]:
    """Sends each to the head's queue; yields the head's answers.

    Args:
        secrets: Of each, by name.

    Raises:
        UserError: The head cannot be reached, or refuses one; those before it are queued.
    """
    with ThreadPoolExecutor() as pool:
        # Both run pulumi, which takes seconds.
        not_deleting = pool.submit(stack.check_not_deleting)
        connecting = pool.submit(Head, stack)
        first = found[0].archive()
        not_deleting.result()
        head = connecting.result()
    for place, (submission, own) in enumerate(zip_longest(found, secrets)):
        packed = submission.archive() if place else first
        try:
            with _progress(packed.size) as on_sent:
                words = ["submit", submission.name, *turn.words]
                if own:
                    head.ask("secrets", submission.name, stdin=json.dumps(own).encode())
                    words.append("--secrets")
                yield head.ask(*words, stdin=packed, on_sent=on_sent)
        except UserError as error:
            if not place:
                raise
            queued = ", ".join(before.name for before in found[:place])
            raise UserError(f"{submission.name}: {error} (queued already: {queued})") from None


@contextmanager
def _progress(total: int) -> Iterator[OnSent]:
    """Shows how much of a large experiment has been sent."""
    if total < PROGRESS_FROM:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = ("Sending", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(file=sys.stderr)) as progress:
        task = progress.add_task("", total=total)
        yield lambda sent: progress.update(task, completed=sent)


def stop_or_resume(options: argparse.Namespace) -> int:
    """Stops or resumes an experiment; shows the state that it has then."""
    head = Head(Stack(options.stack))
    sent.set()
    answer = head.ask(options.verb, options.name)
    # The head waits some minutes for the checkpoint.
    late = options.verb == "stop" and answer["state"] in LIVE
    after = ["Its checkpoint is not written yet. Next: volley status"] if late else []
    show(options.as_json, answer, in_words(answer), *after)
    return 0
