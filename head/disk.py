"""head.disk: keeps space free on the head's disk. disk-space.timer starts it every minute.

It rotates the experiments' logs. Below LOW it removes what can be had again: packages and images
that nothing uses, then runs that are over and saved, oldest first. What Blob does not have stays.
Needs the standard library only.
"""

import fcntl
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .files import files_of_runs
from .marks import LOCK, is_saved
from .paths import HOME, NOTEBOOKS, PACKAGES, RUNS
from .queue.plan import FILES, name_in
from .queue.record import OUTPUT, Record
from .queue.store import REMOVED, RefusedError, Store

GIB = 2**30
LOW = 10 * GIB
"""Below it, room is made."""
LEAST = 5 * GIB
"""Below it, nothing can be submitted."""
LOG_BYTES = 100 * 10**6
"""A longer log is rotated; one older part of it is kept."""
NO_SPACE = GIB
"""Below it, writing may fail."""
RESERVE = HOME / ".reserve"
"""Space that is given up on a full disk: the queue has to write which experiments end by it."""
RESERVE_BYTES = 64 * 2**20
OLDER = ".1"
UNTOUCHED_S = 3600.0
"""Runs stay for this long after their last change: somebody may be downloading them."""
INSTALLED = (PACKAGES, HOME / ".images", HOME / ".cache/volley")
"""Folders of packages, of unpacked images (payload/environments/image.py) and of conda's prefixes
(conda_worker.py). A start touches what it uses."""
HALF_DONE = ("experiments/.incoming-*", "packages/.*.*")
"""What a submit and an installation write aside; they remove it unless they are killed."""
ABANDONED_S = 24 * 3600.0
"""Neither takes this long."""
CACHES = (HOME / ".cache/uv", HOME / ".cache/rattler")
UNDELIVERED = "mlflow_undelivered.json"
"""In a run of which MLflow lacks something; the payload that has written it delivers it later."""


def main() -> int:
    store = Store()
    for log in [*store.root.glob(f"*/{OUTPUT}"), *RUNS.glob("*/runs/*/driver_log.txt")]:
        rotate(log)
    for left in [*HOME.glob(f"*/{REMOVED}*"), *HOME.glob(f"*/*/{REMOVED}*")]:
        _delete(left)  # Of a removal that was killed.
    for left in [path for pattern in HALF_DONE for path in HOME.glob(pattern)]:
        with suppress(FileNotFoundError):  # It has just ended.
            if left.stat().st_mtime < time.time() - ABANDONED_S:
                _delete(left)
    while free_bytes() < LOW and _remove_one(store):
        pass
    if free_bytes() < LOW:
        print(f"{free()}, and nothing more can be removed", flush=True)
    _reserve()
    return 0


def free_bytes() -> int:
    """Returns the space that is left for the user ray on the head's disk."""
    return shutil.disk_usage(HOME).free


def free() -> str:
    return f"the head's disk has {free_bytes() / GIB:.1f} GiB left"


def warning() -> str:
    """Returns what follows from little space; "" if there is enough."""
    if free_bytes() < LEAST:
        return f"nothing can be submitted below {LEAST // GIB} GiB. Next: volley rm NAME"
    if free_bytes() < LOW:
        return f"below {LOW // GIB} GiB the head removes runs that are over and saved"
    return ""


def check_space() -> None:
    """Raises RefusedError if the disk has no space for another experiment."""
    if free_bytes() < LEAST:
        raise RefusedError(
            f"{free()}, less than the {LEAST // GIB} GiB that an experiment needs",
            "volley rm NAME, for one that is over",
        )


def _reserve() -> None:
    if free_bytes() < RESERVE_BYTES:
        RESERVE.unlink(missing_ok=True)
    elif free_bytes() > LOW + RESERVE_BYTES and not RESERVE.exists():
        RESERVE.write_bytes(bytes(RESERVE_BYTES))


def rotate(log: Path) -> None:
    """Empties a log that is too long and keeps a copy; its writers append to it."""
    older = log.with_name(f"{log.name}{OLDER}")
    try:
        if log.is_symlink() or log.stat().st_size <= LOG_BYTES:
            return
        shutil.copyfile(log, older)
    except FileNotFoundError:
        return
    except OSError as error:
        print(f"{log}: its older lines are lost: {error}", flush=True)
        older.unlink(missing_ok=True)
    os.truncate(log, 0)


def remove_runs(folder: Path, store: Store) -> None:
    """Removes a folder of RUNS, unless an experiment has been submitted that continues it."""
    with _saves_paused():
        if folder.name in _unfinished_keys(store) or not folder.is_dir():
            return
        aside = _taken_away(folder)
    _delete(aside)


def _remove_one(store: Store) -> bool:
    """Removes what is needed least; returns whether there was something."""
    with _saves_paused():
        # Chosen under the lock: experiments may have been submitted while it waited.
        path = next(_removable(store), None)
        if path is None:
            return False
        print(f"{free()}: removing {path.relative_to(HOME)}", flush=True)
        aside = _taken_away(path)
    _delete(aside)
    return True


@contextmanager
def _saves_paused() -> Iterator[None]:
    """Waits for the end of a save, and keeps others from starting.

    A save takes what is missing of a run's checkpoints for rotated away, and deletes it from Blob.
    """
    lock = os.open(LOCK, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _taken_away(path: Path) -> Path:
    """Renames a folder or a file, so that every reader loses it at once; returns its new path."""
    aside = path.with_name(f"{REMOVED}{path.name}")
    _delete(aside)
    return path.rename(aside)


def _delete(path: Path) -> None:
    # Folders of an image may be read-only.
    for command in (["chmod", "--recursive", "u+rwX"], ["rm", "--recursive", "--force"]):
        subprocess.run([*command, str(path)], stderr=subprocess.DEVNULL, check=False)


def _removable(store: Store) -> Iterator[Path]:
    records = store.records()
    yield from _unused(records)
    # Nothing starts it again. Its record, its status and its log stay; the laptop has the rest.
    undelivered = {name_in(path.name) for path in _folders(RUNS) if _has_undelivered(path)}
    for record in records:
        if record.state == "FINISHED" and record.name not in undelivered:
            sent = store.folder(record.name).glob("[!.]*")
            yield from (path for path in sent if path.is_dir() or path.name == FILES)
    unfinished = _unfinished_keys(store)
    folders = [path for path in _folders(RUNS) if path.name not in unfinished and path != NOTEBOOKS]
    for changed, folder in sorted((_last_change(folder), folder) for folder in folders):
        if changed > time.time() - UNTOUCHED_S or _has_undelivered(folder):
            continue
        # Looking takes a while.
        if all(map(is_saved, files_of_runs(folder))) and folder.name not in _unfinished_keys(store):
            yield folder


def _unused(records: Sequence[Record]) -> Iterator[Path]:
    """Yields what no unfinished experiment has used since it was submitted."""
    unfinished = [record for record in records if not record.over]
    if any(record.state == "STARTING" for record in unfinished):
        return  # It may have found any of them just now.
    since = min((record.submitted for record in unfinished), default=math.inf)
    for parent in INSTALLED:
        yield from (path for path in _folders(parent) if path.stat().st_mtime < since)
    if not any(record.live for record in unfinished):
        yield from filter(Path.is_dir, CACHES)


def _unfinished_keys(store: Store) -> set[str]:
    return {record.key for record in store.records() if not record.over}


def _has_undelivered(runs: Path) -> bool:
    return any(path.name == UNDELIVERED for path in files_of_runs(runs))


def _folders(parent: Path) -> list[Path]:
    return [path for path in parent.glob("[!.]*") if path.is_dir() and not path.is_symlink()]


def _last_change(folder: Path) -> float:
    files = (path.lstat().st_mtime for path in files_of_runs(folder))
    return max(files, default=folder.stat().st_mtime)


if __name__ == "__main__":
    sys.exit(main())
