"""`volley submit`: the payload and an experiment go to the head, where they queue."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from payload.experiment import (
    MAX_TRAVEL_BYTES,
    UserError,
    named_paths,
    nearest,
    read_experiment,
)
from payload.parcel.experiment_files import (
    archive,
    experiment_files,
    experiment_name,
    largest,
    sizes,
)
from volley.errors import refused
from volley.head import Head, Told
from volley.stack import Stack
from volley.tables import show, stands

ROOT = Path(__file__).parents[1]
"""Where the payload is."""
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
PROGRESS_FROM = 5 * 2**20
"""Bytes; less is sent before a bar could be read."""


def submit(stack: Stack, path: Path, name: str | None, now: bool, as_json: bool) -> int:
    """Checks an experiment, packs it with the payload, and sends both to the head."""
    name = checked_name(path, name)
    check(path)
    with ThreadPoolExecutor() as pool:
        # Both ask pulumi, which takes seconds.
        not_deleting = pool.submit(stack.check_not_deleting)
        connecting = pool.submit(Head, stack)
        packed = pack(path)
        not_deleting.result()
        head = connecting.result()
    words = ["submit", name, *(["--now"] if now else [])]
    with _progress(len(packed)) as told:
        answer = head.ask(*words, stdin=packed, told=told)
    show(as_json, answer, stands(answer), f"Next: volley logs {name} -f")
    return 0


def checked_name(path: Path, name: str | None) -> str:
    """Returns the name on the head: what is given, or the file's, as `pulumi up` names it.

    Raises:
        UserError: The name has other characters than the head's folders.
    """
    if not NAME.fullmatch(found := experiment_name(path) if name is None else name):
        raise UserError(
            f"--name {found!r}: must be 1 to 40 of a-z, 0-9 and -, and not begin with a hyphen"
        )
    return found


def check(path: Path) -> None:
    """Checks an experiment file, and that what it names is there and can be sent.

    Raises:
        UserError: With the line of the file.
    """
    if not path.exists():
        beside = [str(file) for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        raise UserError(f"{path}: no such file{nearest(str(path), beside)}")
    try:
        experiment = read_experiment(path).experiment
    except UserError as error:
        raise _with_line(path, str(error)) from None
    for key, named in named_paths(experiment).items():
        if not Path(named).exists():
            raise _with_line(path, f"{key}: {named} does not exist")
    files = sizes(experiment)
    if (total := sum(files.values())) > MAX_TRAVEL_BYTES:
        raise UserError(
            f"{path}: names files of {total / 2**20:,.0f} MiB, more than the "
            f"{MAX_TRAVEL_BYTES / 2**20:.0f} MiB that Ray distributes; "
            f"the largest: {largest(files)}"
        )


def pack(path: Path) -> bytes:
    """Returns the tar file that volley-head reads; the same content gives the same bytes.

    Raises:
        UserError: hatchling, which collects the payload, is not installed.
    """
    try:
        from payload.parcel.payload_archive import payload_archive
    except ImportError as error:
        raise refused(f"{error.name} is not installed", "make .venv/infra") from None
    files = experiment_files(path)
    members = {
        "payload.tar": payload_archive(ROOT),
        "experiment.yaml": files.experiment,
        "stack.yaml": b"{}",
    }
    if files.archive:
        members["files.tar"] = files.archive
    return archive(members)


def _with_line(path: Path, error: str) -> UserError:
    """Returns an error that begins with the file and, where the key is found in it, the line."""
    error = error.removeprefix(f"{path}: ")
    line = line_of(path, error.split(":", 1)[0].split("."))
    return UserError(f"{path}{f':{line}' if line else ''}: {error}")


def line_of(path: Path, keys: list[str]) -> int | None:
    """Returns the line of a key, ["config", "lr"], or of the last one of its parents."""
    try:
        node: Any = yaml.compose(path.read_text("utf-8"), Loader=yaml.SafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return None
    line = None
    while keys and isinstance(node, yaml.MappingNode):
        # A key may have dots and slashes itself: env_runners/episode_return_mean.
        found = [(key, value) for key, value in node.value if key.value == keys[0]]
        if not found:
            break
        (key, node), keys = found[0], keys[1:]
        line = key.start_mark.line + 1
    return line


@contextmanager
def _progress(total: int) -> Iterator[Told]:
    """Shows how much of a large experiment was sent."""
    if total < PROGRESS_FROM:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = ("Sending", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(file=sys.stderr)) as progress:
        task = progress.add_task("", total=total)
        yield lambda sent: progress.update(task, completed=sent)
