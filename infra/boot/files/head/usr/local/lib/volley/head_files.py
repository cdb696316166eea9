"""`volley-head logs`, `manifest` and `files`: what experiments and units have written."""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import tarfile
import time
from argparse import Namespace
from collections import deque
from pathlib import Path
from typing import Any

from experiment_record import OUTPUT
from experiment_store import RefusedError, Store
from places import RUNS

BOOT = Path("/var/log/cloud-init-output.log")
POLL_S = 0.5


def logs(store: Store, options: Namespace) -> None:
    """Prints the end of a log. With --follow also what comes, until the experiment has ended."""
    lines = str(options.lines)
    if options.unit is not None:
        command = ["journalctl", f"--unit={options.unit}", "--no-pager", f"--lines={lines}"]
        os.execvp("journalctl", command + ["--follow"] * options.follow)
    if options.boot:
        os.execvp("tail", ["tail", "-n", lines, *["--follow"] * options.follow, str(BOOT)])
    if options.name is None:
        raise RefusedError("logs of what? NAME, --unit UNIT or --boot", "volley logs NAME")
    name = store.get(options.name).name
    output = store.folder(name) / OUTPUT
    while not output.exists():
        if not options.follow or store.get(name).over or _reader_is_gone():
            return
        time.sleep(POLL_S)
    with output.open("rb") as file:
        sys.stdout.buffer.writelines(deque(file, options.lines))
        while True:
            ended = not options.follow or store.get(name).over
            shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            if ended or _reader_is_gone():
                return
            time.sleep(POLL_S)


def manifest(store: Store, options: Namespace) -> dict[str, Any]:
    """Returns every file of an experiment's runs."""
    root = _root(store, options)
    found = []
    for parent, folders, names in os.walk(root):
        # Names that start with a dot are files that are being written.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for path in (Path(parent, name) for name in sorted(names) + links):
            if not path.name.startswith("."):
                found.append(_entry(root, path))
    return {"root": str(root), "files": found}


def files(store: Store, options: Namespace) -> None:
    """Writes a tar of the files to stdout whose paths are on stdin, a JSON list.

    Files that are gone meanwhile are left out.
    """
    root = _root(store, options).resolve()
    asked = json.load(sys.stdin)
    for path in (root / name for name in asked):
        if ".." in path.parts or not path.parent.resolve().is_relative_to(root):
            raise RefusedError(f"{path} is not below {root}")
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for name in asked:
            if os.path.lexists(root / name):
                archive.add(root / name, arcname=name, recursive=False)


def _root(store: Store, options: Namespace) -> Path:
    return RUNS / store.get(options.name).key


def _entry(root: Path, path: Path) -> dict[str, Any]:
    state = path.lstat()
    entry = {"path": str(path.relative_to(root)), "size": state.st_size}
    entry["mtime_ns"] = state.st_mtime_ns
    if path.is_symlink():
        entry["link"] = os.readlink(path)
    return entry


def _reader_is_gone() -> bool:
    """Whether nobody reads what this process writes."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))
