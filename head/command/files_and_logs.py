"""`volley-head logs`, `manifest` and `files`: logs, and the files of runs."""

import json
import os
import re
import select
import shutil
import sys
import tarfile
import time
from argparse import Namespace
from collections import deque
from pathlib import Path, PurePosixPath
from typing import IO, Any

from ..below import Below
from ..files import files_of_runs
from ..marks import MARKS
from ..paths import BOOT_LOG, NOTEBOOKS, RUNS
from ..queue.record import OUTPUT
from ..queue.store import RefusedError, Store

POLL_S = 0.5
KEY = re.compile(r"[a-z0-9][a-z0-9-]{0,39}-[0-9a-f]{12}")
"""The folder of an experiment's runs, see head.queue.plan.key_of."""


def logs(store: Store, options: Namespace) -> None:
    """Prints the end of a log; with --follow also new lines, until the experiment has ended."""
    lines = str(options.lines)
    if options.unit is not None:
        command = ["journalctl", f"--unit={options.unit}", "--no-pager", f"--lines={lines}"]
        os.execvp("journalctl", command + ["--follow"] * options.follow)
    if options.boot:
        os.execvp("tail", ["tail", "-n", lines, *["--follow"] * options.follow, str(BOOT_LOG)])
    if options.name is None:
        raise RefusedError("which log? NAME, --unit UNIT or --boot", "volley logs NAME")
    name = store.get(options.name).name
    output = store.folder(name) / OUTPUT
    while not os.path.lexists(output):
        if not options.follow or store.get(name).over or _reader_is_gone():
            return
        time.sleep(POLL_S)
    try:
        file = _open(store.root, PurePosixPath(name, OUTPUT))
    except OSError as error:
        raise RefusedError(f"{output} cannot be read: {error.strerror}") from None
    with file:
        sys.stdout.buffer.writelines(deque(file, options.lines))
        while True:
            ended = not options.follow or _has_ended(store, name, file)
            if file.tell() > os.fstat(file.fileno()).st_size:
                file.seek(0)  # disk.py has rotated it.
            shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            if ended or _reader_is_gone():
                return
            time.sleep(POLL_S)


def manifest(store: Store, options: Namespace) -> dict[str, Any]:
    """Returns every file of an experiment's runs, or of the notebooks.

    `removed` are runs that only Blob has: disk.py has made room.
    """
    root = _root(store, options)
    files = [_entry(root, path) for path in files_of_runs(root)]
    removed = not root.exists() and (MARKS / root.name).exists()
    return {"root": str(root), "removed": removed, "files": files}


def files(store: Store, options: Namespace) -> None:
    """Writes a tar file to stdout; the paths of its members are a JSON list on stdin.

    It leaves out files that have disappeared meanwhile, and what is behind a link: an experiment's
    code may have made it, and this process is root.
    """
    root = _root(store, options)
    names = json.load(sys.stdin)
    for path in map(PurePosixPath, names):
        if ".." in path.parts or not path.name or path.is_absolute():
            raise RefusedError(f"{path} is not below {root}")
    # With dereference, a second name of the same file is a file, too.
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", dereference=True) as archive:
        for name in names:
            try:
                file = _open(RUNS, PurePosixPath(root.name, name))
            except OSError:
                continue
            with file:
                archive.addfile(archive.gettarinfo(arcname=name, fileobj=file), file)


def _root(store: Store, options: Namespace) -> Path:
    if options.name == NOTEBOOKS.name and not store.folder(options.name).exists():
        return NOTEBOOKS
    try:
        root = RUNS / store.get(options.name).key
    except RefusedError:
        # An experiment of the same name has replaced it: its runs are found by their folder.
        root = RUNS / options.name
        if not KEY.fullmatch(options.name) or not root.is_dir():
            raise
    if root.is_symlink():
        raise RefusedError(f"{root} is a link, which is not followed")
    return root


def _has_ended(store: Store, name: str, output: IO[bytes]) -> bool:
    """Whether an experiment is over, was removed, or was replaced by one with another output."""
    try:
        ended = store.get(name).over
        return ended or not os.path.samestat(
            os.stat(store.folder(name) / OUTPUT), os.fstat(output.fileno())
        )
    except (RefusedError, FileNotFoundError):
        return True


def _open(folder: Path, path: PurePosixPath) -> IO[bytes]:
    with Below(folder) as below:
        return below.open(path)


def _entry(root: Path, path: Path) -> dict[str, Any]:
    state = path.lstat()
    entry = {"path": str(path.relative_to(root)), "size": state.st_size}
    entry["mtime_ns"] = state.st_mtime_ns
    if path.is_symlink():
        entry["link"] = os.readlink(path)
    return entry


def _reader_is_gone() -> bool:
    """Whether the other end of stdout is closed."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(0))
