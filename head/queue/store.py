"""All experiments of this head, and their changes of state.

The command and the queue change states here, under one lock. Both may be killed at any moment, and
every change can be repeated.
"""

import difflib
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..files import sync
from ..paths import EXPERIMENTS
from ..sleep_record import is_going_to_sleep
from .record import NO_TRIES, Record, read_record


class RefusedError(Exception):
    def __init__(self, reason: str, next_command: str = "volley status") -> None:
        super().__init__(reason)
        self.next_command = next_command


NEXT, OLD = ".next-", ".old-"
"""Begin the names of folders: an experiment's replacement, and what a new one has replaced."""
REMOVED = ".removed-"
"""Begins the name of what is being deleted; if that is interrupted, head.disk deletes the rest."""


class Store:
    """The folder of all experiments."""

    def __init__(self, root: Path = EXPERIMENTS) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def folder(self, name: str) -> Path:
        return self.root / name

    def records(self) -> list[Record]:
        """Returns all experiments in the order in which they are served."""
        folders = self.root.glob("[a-z0-9]*")
        records = [record for record in map(read_record, folders) if record is not None]
        return sorted(records, key=lambda record: (record.turn, record.submitted))

    def find(self, name: str) -> Record | None:
        """Returns an experiment, or None if there is none, or none can have this name."""
        # Names come from the command line; the first letter excludes "" and "..".
        return read_record(self.folder(name)) if name[:1].isalnum() and "/" not in name else None

    def get(self, name: str) -> Record:
        """Returns an experiment.

        Raises:
            RefusedError: There is none; the error names the nearest one.
        """
        record = self.find(name)
        if record is None:
            names = [record.name for record in self.records()]
            nearest = difflib.get_close_matches(name, names, n=1)
            hint = f" (did you mean {nearest[0]}?)" if nearest else ""
            raise RefusedError(f"no experiment is called {name}{hint}")
        return record

    def change(self, record: Record, **changes: Any) -> Record | None:
        """Changes some fields, unless the state or the wish has changed meanwhile.

        Returns:
            The experiment as it is now.
        """
        with self._locked():
            now = read_record(self.folder(record.name))
            if now is not None and _same(now, record):
                now = replace(now, **changes)
                now.write(self.folder(now.name))
        return now

    def note(self, name: str, reason: str, instead_of: str | None = None) -> None:
        """Changes only the reason of an unfinished experiment's record.

        Args:
            instead_of: The reason that it must have now.
        """
        with self._locked():
            record = read_record(self.folder(name))
            if record is None or record.over or record.reason == reason:
                return
            if instead_of in (None, record.reason):
                replace(record, reason=reason).write(self.folder(name))

    def submit(
        self,
        record: Record,
        content: Path,
        replaces: bool,
        priority: int | None = None,
        on_accepted: Callable[[bool], object] = lambda _: None,
    ) -> Record:
        """Puts an experiment into the queue, unless the same one is there.

        Args:
            content: A folder beside the others, which becomes the experiment's: at once, or when
                the one that it replaces has written its checkpoint.
            replaces: Whether it replaces an unfinished experiment of its name, and any that
                `pulumi up` has submitted under another name. It takes over the place in the queue.
            priority: Of this experiment, also if the same one is there; None for the one that it
                has or takes over.
            on_accepted: Called, under the lock, before the first change, with whether the
                experiment is another one than is there.

        Raises:
            RefusedError: Another experiment of the name has not ended, or the cluster is going to
                sleep.
        """
        with self._locked():
            check_awake()
            there = read_record(self.folder(record.name))
            before = there if there and not there.over else None
            if before and before.digest == record.digest and before.wish != "replace":
                on_accepted(False)
                same = _not_stopped(before)
                if priority is not None:
                    same = replace(same, priority=priority)
                if record.now and not before.live:
                    highest = self._highest_priority(same.priority)
                    same = replace(same, now=True, order=self._order(now=True), priority=highest)
                if before.not_before:  # It has failed: try again now, and count from the start.
                    same = replace(same, failures=[], reason="", **TRY_NOW)
                if same != before:
                    same.write(self.folder(same.name))
                return same
            if before and not replaces:
                raise RefusedError(
                    f"an experiment {record.name} is {before.state} with other files",
                    f"volley submit ... --name OTHER (or volley stop {record.name})",
                )
            on_accepted(True)
            for other in self.records() if replaces else []:
                if other.up and other.name != record.name and not other.over:
                    before = before or other
                    self._stop(other)
            order = before.order if before else self._order(record.now)
            if priority is None:
                priority = before.priority if before else 0
            if record.now:
                priority = self._highest_priority(priority)
            record = replace(record, order=order, priority=priority, submitted=time.time())
            record.write(content)
            _sync_all(content)
            if there and there.live:
                content.rename(self._emptied(f"{NEXT}{record.name}"))
                sync(self.root)
                replace(there, wish="replace").write(self.folder(record.name))
            else:
                self._place(content, record.name)
        return record

    def place_next(self, name: str) -> None:
        """Puts the replacement of a stopped experiment into the queue."""
        with self._locked():
            content = self.root / f"{NEXT}{name}"
            if content.exists():
                self._place(content, name)

    def interrupted(self) -> set[str]:
        """Returns the names of experiments whose replacement is not complete yet."""
        return {
            path.name.removeprefix(prefix)
            for prefix in (NEXT, OLD)
            for path in self.root.glob(f"{prefix}*")
        }

    def repair(self, name: str) -> None:
        """Completes a replacement whose process was killed."""
        following, old = self.root / f"{NEXT}{name}", self.root / f"{OLD}{name}"
        with self._locked():
            there = read_record(self.folder(name))
            wanted = there is None or there.wish == "replace"
            if following.exists() and wanted and not (there and there.live):
                self._place(following, name)
            elif there is None and old.exists():
                self._place(old, name)
            elif not wanted:
                shutil.rmtree(following, ignore_errors=True)
            if there is not None:
                shutil.rmtree(old, ignore_errors=True)

    def stop(self, name: str) -> Record:
        """Stops an experiment that waits, and asks the queue to stop one that trains."""
        with self._locked():
            return self._stop(self.get(name))

    def ended(self, name: str) -> Record:
        """Returns an experiment that is over.

        Raises:
            RefusedError: It is not, or there is none.
        """
        record = self.get(name)
        if not record.over:
            raise RefusedError(f"{name} is {record.state}", f"volley stop {name}")
        return record

    def remove(self, name: str, on_removal: Callable[[], object] = lambda: None) -> None:
        """Removes the folder of an experiment that is over, as `ended`.

        Args:
            on_removal: Called, under the lock, before the first change.
        """
        with self._locked():
            self.ended(name)
            on_removal()
            # Not under OLD: `repair` would bring it back.
            removed = self._emptied(f"{REMOVED}{name}")
            self.folder(name).rename(removed)
        shutil.rmtree(removed, ignore_errors=True)

    def resume(self, name: str) -> Record:
        """Puts a stopped or failed experiment at the end of the queue.

        One that is still being stopped continues from the checkpoint that it writes.

        Raises:
            RefusedError: It has finished, its record is lost, or the cluster is going to sleep.
        """
        with self._locked():
            check_awake()
            record = self.get(name)
            if record.damaged:
                raise RefusedError(record.reason, f"volley submit EXPERIMENT --name {name}")
            if record.state == "FINISHED":
                submit = f"volley submit EXPERIMENT --name {name}"
                raise RefusedError(f"{name} has finished", submit)
            if record.over:
                following = record.submitted_again(time.time(), self._order())
            else:
                following = _not_stopped(record)
            if following != record:
                following.write(self.folder(name))
        return following

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.root / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _stop(self, record: Record) -> Record:
        if record.live:
            stopped = replace(record, wish="stop")
        elif not record.over:
            stopped = replace(record, state="STOPPED", reason="stopped", ended=time.time())
        else:
            stopped = replace(record, wish="")  # Nor does a replacement follow.
        if stopped != record:
            stopped.write(self.folder(record.name))
        return stopped

    def _highest_priority(self, own: int) -> int:
        """Returns the highest priority of all unfinished experiments and `own`."""
        return max([own, *(record.priority for record in self.records() if not record.over)])

    def _order(self, now: bool = False) -> int:
        """Returns a place at the end of the queue, or before all unfinished experiments."""
        if now:
            waiting = (record.order for record in self.records() if not record.over)
            return min(waiting, default=1) - 1
        return max((record.order for record in self.records()), default=0) + 1

    def _place(self, content: Path, name: str) -> None:
        """Makes `content` the experiment's folder, in place of an existing one."""
        old = self.root / f"{OLD}{name}"
        if self.folder(name).exists():
            self.folder(name).rename(self._emptied(old.name))
        content.rename(self.folder(name))
        sync(self.root)
        shutil.rmtree(old, ignore_errors=True)

    def _emptied(self, name: str) -> Path:
        """Removes a folder atomically, also if this process is killed; returns its path."""
        path, gone = self.root / name, self.root / f".gone{name}"
        shutil.rmtree(gone, ignore_errors=True)
        with suppress(FileNotFoundError):
            path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        return path


TRY_NOW: dict[str, Any] = {"not_before": 0.0, **NO_TRIES}
"""The fields of a record that has nothing to wait for."""


def check_awake() -> None:
    """Raises RefusedError while the cluster is going to sleep."""
    if is_going_to_sleep():
        raise RefusedError("the cluster is going to sleep", "volley start")


def _not_stopped(record: Record) -> Record:
    """Returns an unfinished experiment without the wish to stop it."""
    return replace(record, wish="requeue") if record.wish == "stop" else record


def _same(record: Record, other: Record) -> bool:
    return (record.submitted, record.state, record.wish) == (
        other.submitted,
        other.state,
        other.wish,
    )


def _sync_all(folder: Path) -> None:
    """Waits until the disk has a folder's files: after a power cut none of them is empty."""
    for parent, _, names in os.walk(folder):
        for name in names:
            if not (path := Path(parent, name)).is_symlink():
                sync(path)
        sync(Path(parent))
