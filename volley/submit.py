"""`volley submit`, `stop` and `resume`: experiments and scripts in the head's queue."""

import argparse
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from head.queue.record import LIVE
from payload.experiment import (
    MAX_TRAVEL_BYTES,
    Experiment,
    MachineNeeds,
    UserError,
    nearest,
    problems_of_files,
    read_experiment,
)
from payload.experiment.bounded_yaml import BoundedLoader
from payload.experiment.script import Script, is_script, read_script
from payload.parcel import (
    archive,
    experiment_files,
    experiment_name,
    largest,
    payload_archive,
    script_files,
    sizes,
)
from volley.head import Head, OnSent
from volley.stack import Stack
from volley.tables import in_words, show

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
PROGRESS_FROM = 5 * 2**20
"""Bytes; less is sent before anyone could read a progress bar."""


def submit(options: argparse.Namespace) -> int:
    """Checks an experiment or a script, packs it with the payload, and sends both to the head."""
    path = options.file
    name = checked_name(path, options.name)
    submitted = check(path, options.script_params, options.source_directory)
    answer = send(Stack(options.stack), name, path, submitted, options.now)
    show(options.as_json, answer, in_words(answer), f"Next: volley logs {name} -f")
    return 0


def send(
    stack: Stack, name: str, path: Path, submitted: Experiment | Script, now: bool = False
) -> dict[str, Any]:
    """Sends what a file describes to the head's queue; returns the head's answer.

    Raises:
        UserError: The head cannot be reached, or refuses it.
    """
    with ThreadPoolExecutor() as pool:
        # Both run pulumi, which takes seconds.
        not_deleting = pool.submit(stack.check_not_deleting)
        connecting = pool.submit(Head, stack)
        packed = pack(path, submitted)
        not_deleting.result()
        head = connecting.result()
    words = ["submit", name, *(["--now"] if now else [])]
    with _progress(len(packed)) as on_sent:
        return head.ask(*words, stdin=packed, on_sent=on_sent)


def checked_name(path: Path, name: str | None) -> str:
    """Returns the name on the head: the given one, or the file's, as `pulumi up` names it.

    Raises:
        UserError: The name has characters that are not allowed.
    """
    checked = experiment_name(path) if name is None else name
    if not NAME.fullmatch(checked):
        raise UserError(
            f"--name {checked!r}: must be 1 to 40 characters of a-z, 0-9 and -, and must not "
            "begin with a hyphen"
        )
    return checked


def check(
    path: Path, script_params: list[str], source_directory: str | None
) -> Experiment | Script:
    """Checks a file, and that the files that it names exist and are not too large.

    Raises:
        UserError: With the line of the file.
    """
    if not path.exists():
        beside = [str(file) for end in ("*.y*ml", "*.py") for file in path.parent.glob(end)]
        raise UserError(f"{path}: no such file{nearest(str(path), beside)}")
    try:
        submitted = _read(path, script_params, source_directory)
        check_files(submitted)
    except UserError as error:
        raise _with_line(path, str(error)) from None
    return submitted


def check_files(needs: MachineNeeds) -> None:
    """Raises UserError unless the files that it names can be read and are not too large."""
    for problem in problems_of_files(needs):
        raise UserError(problem)
    files = sizes(needs)
    if (total := sum(files.values())) > MAX_TRAVEL_BYTES:
        raise UserError(
            f"its files have {total / 2**20:,.0f} MiB, more than the "
            f"{MAX_TRAVEL_BYTES / 2**20:.0f} MiB that Ray distributes; "
            f"the largest: {largest(files)}"
        )


def _read(
    path: Path, script_params: list[str], source_directory: str | None
) -> Experiment | Script:
    if is_script(path):
        return read_script(path, script_params, source_directory)
    for given, option in ((script_params, "--"), (source_directory, "--source-directory")):
        if given:
            raise UserError(f"{path}: is an experiment; {option} is for scripts")
    return read_experiment(path).experiment


def pack(path: Path, submitted: Experiment | Script) -> bytes:
    """Returns the tar file that volley-head reads; the same content gives the same bytes."""
    files = script_files(submitted) if isinstance(submitted, Script) else experiment_files(path)
    members = {
        "payload.tar": payload_archive(),
        "experiment.yaml": files.experiment,
        "stack.yaml": b"{}",
    }
    if files.archive:
        members["files.tar"] = files.archive
    return archive(members)


def _with_line(path: Path, error: str) -> UserError:
    """Returns an error that begins with the file, and with the line if the key is in it."""
    error = error.removeprefix(f"{path}: ")
    line = line_of(path, error.split(":", 1)[0].split("."))
    return UserError(f"{path}{f':{line}' if line else ''}: {error}")


def line_of(path: Path, keys: list[str]) -> int | None:
    """Returns the line of a key, ["config", "lr"], or of the last one of its parents."""
    try:
        node: Any = yaml.compose(path.read_text("utf-8"), Loader=BoundedLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return None
    line = None
    while keys and isinstance(node, yaml.MappingNode):
        # A key may have dots and slashes itself: env_runners/episode_return_mean.
        matches = [(key, value) for key, value in node.value if key.value == keys[0]]
        if not matches:
            break
        (key, node), keys = matches[0], keys[1:]
        line = key.start_mark.line + 1
    return line


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
    answer = Head(Stack(options.stack)).ask(options.verb, options.name)
    # The head waits some minutes for the checkpoint.
    late = options.verb == "stop" and answer["state"] in LIVE
    after = ["Its checkpoint is not written yet. Next: volley status"] if late else []
    show(options.as_json, answer, in_words(answer), *after)
    return 0
