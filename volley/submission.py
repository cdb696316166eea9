"""What `volley submit` sends: experiments and scripts, read and checked here."""

from __future__ import annotations

import getpass
import glob
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from head.queue.record import SUBMITTED_BY
from payload.archive import Archive
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
from payload.notification import in_files
from payload.parcel import (
    ExperimentFiles,
    experiment_files,
    experiment_name,
    files_of,
    largest,
    payload_archive,
    script_files,
    sizes,
)
from volley.errors import refused
from volley.experiment_arguments import trained

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
DIRECTORY = "source_directory"


@dataclass(frozen=True)
class Submission:
    """An experiment or a script for the head's queue."""

    name: str
    """On the cluster."""
    read: Experiment | Script
    file: Path | None = None
    """The file that is sent as it is, unless it has a URL to be notified; None to write what was
    read."""
    notes: list[str] = field(default_factory=list)
    """A line for each name that was translated, ignored or added."""

    def files(self) -> ExperimentFiles:
        """Returns what was read as it is sent, and what it names."""
        if isinstance(self.read, Script):
            return script_files(self.read)
        notify = self.read.notify or ""
        if self.file is None or in_files(notify) != notify:
            return files_of(self.read)
        return experiment_files(self.file)

    def archive(self) -> Archive:
        """Returns the tar file that volley-head reads; the same content gives the same bytes.

        Besides the content it has who submits.
        """
        files = self.files()
        members: dict[str, bytes | Archive] = {
            "payload.tar": payload_archive(),
            "experiment.yaml": files.experiment,
            "stack.yaml": b"{}",
            SUBMITTED_BY: submitter().encode(),
        }
        return Archive({**members, **({"files.tar": files.archive} if files.archive else {})})


def submissions(
    patterns: Sequence[str],
    name: str | None = None,
    script_params: list[str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> list[Submission]:
    """Reads and checks files, all of them before anything is sent.

    Args:
        patterns: Files, or patterns of files; none for an experiment of `overrides` alone.
        name: The name on the cluster, of a single one.
        script_params: Arguments of scripts.
        overrides: Keys of an experiment, stronger than its file; for a script source_directory and
            notify.

    Raises:
        UserError: A file or an option cannot be used.
    """
    overrides = overrides or {}
    files = files_like(patterns)
    if name is not None and len(files) > 1:
        raise UserError(f"--name {name}: is for one experiment, and there are {len(files)} files")
    if not files:
        if script_params or not overrides:
            raise refused("no experiment given", "volley submit FILE, or volley submit --env ID")
        return [of_overrides(overrides, name)]
    checked = [of_file(file, name, script_params or [], overrides) for file in files]
    by_name: dict[str, Path] = {}
    for file, submission in zip(files, checked, strict=True):
        other = by_name.setdefault(submission.name, file)
        if other != file:
            raise refused(
                f"{other} and {file} are both called {submission.name} on the cluster",
                f"volley submit {file} --name OTHER",
            )
    return checked


def files_like(patterns: Sequence[str]) -> list[Path]:
    """Returns the files of patterns, each once.

    Raises:
        UserError: No file is like a pattern, or it is a folder.
    """
    files: dict[Path, None] = {}
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            raise refused(f"{pattern}: is a folder", f"volley submit '{path / '*.yaml'}'")
        like = sorted(map(Path, glob.glob(pattern, recursive=True)))
        if path.exists() or not glob.has_magic(pattern):
            like = [path]  # `of_file` names the nearest file to one that is missing.
        elif not like:
            raise UserError(f"{pattern}: matches no file")
        files |= dict.fromkeys(file for file in like if not file.is_dir())
    return list(files)


def of_file(
    path: Path, name: str | None, script_params: list[str], overrides: Mapping[str, Any]
) -> Submission:
    """Reads a file, and checks that what it names exists and is not too large.

    Raises:
        UserError: With the line of the file.
    """
    if not path.exists():
        beside = [str(file) for end in ("*.y*ml", "*.py") for file in path.parent.glob(end)]
        raise UserError(f"{path}: no such file{nearest(str(path), beside)}")
    name = checked_name(path, name)
    try:
        if is_script(path):
            for key in overrides:
                if key not in (DIRECTORY, "notify"):
                    raise UserError(f"{path}: is a script; --{key} is for experiments")
            script = read_script(path, script_params, keys=overrides)
            check_files(script)
            return Submission(name, script)
        if script_params:
            raise UserError(f"{path}: is an experiment; -- is for scripts")
        loaded = read_experiment(path, dict(overrides))
        check_files(loaded.experiment)
    except UserError as error:
        raise _with_line(path, str(error), overrides) from None
    return Submission(name, loaded.experiment, None if overrides else path, loaded.notes)


def submitter() -> str:
    """Returns user@host, by which a cluster's cost is divided among people."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A user id without a name.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def of_overrides(overrides: Mapping[str, Any], name: str | None = None) -> Submission:
    """Returns an experiment without a file, named after what it trains.

    Raises:
        UserError: A key or a value cannot be used.
    """
    loaded = read_experiment(dict(overrides))
    check_files(loaded.experiment)
    name = checked_name(Path(f"{trained(loaded.experiment)}.yaml"), name)
    return Submission(name, loaded.experiment, notes=loaded.notes)


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


def _with_line(path: Path, error: str, overrides: Mapping[str, Any]) -> UserError:
    """Returns an error that begins with the file, and with the line if the key is in it.

    That of a key which an option has given is as it is.
    """
    error = error.removeprefix(f"{path}: ")
    section, _, key = error.split(":", 1)[0].partition(".")
    given = overrides.get(section)
    if section in overrides and (not key or (isinstance(given, Mapping) and key in given)):
        return UserError(f"--{section.replace('_', '-')}: {error}")
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
