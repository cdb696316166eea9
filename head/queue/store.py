"""All experiments of this head, and their changes of state.

The command and the queue change states here, under one lock. Both may be killed at any moment, and
every change can be repeated.
"""

import difflib
import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..paths import EXPERIMENTS
from ..sleep_record import is_going_to_sleep
from .record import STATE, Record, read_record


class RefusedError(Exception):
    def __init__(self, reason: str, next_command: str = "volley status") -> None:
        super().__init__(reason)
        self.next_command = next_command


class Store:
    """The folder of all experiments."""

    def __init__(self, root: Path = EXPERIMENTS) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def folder(self, name: str) -> Path:
        return self.root / name

    def records(self) -> list[Record]:
        """Returns all experiments in their order."""
        folders = [path.parent for path in self.root.glob(f"[a-z0-9]*/{STATE}")]
        records = [record for record in map(read_record, folders) if record is not None]
        return sorted(records, key=lambda record: (record.order, record.submitted))

    def get(self, name: str) -> Record:
        """Returns an experiment.

        Raises:
            RefusedError: There is none; the error names the nearest one.
        """
        record = read_record(self.folder(name))
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

    def submit(self, record: Record, content: Path, replaces: bool) -> Record:
        """Puts an experiment into the queue, unless the same one is there.

        Args:
            content: A folder beside the others, which becomes the experiment's: at once, or when
                the one that it replaces has written its checkpoint.
            replaces: Whether it replaces an unfinished experiment of its name, and any that
                `pulumi up` has submitted under another name. It takes over the place in the queue.

        Raises:
            RefusedError: Another experiment of the name has not ended, or the cluster is going to
                sleep.
        """
        with self._locked():
            check_awake()
            there = read_record(self.folder(record.name))
            before = there if there and not there.over else None
            if before and before.digest == record.digest and not before.wish:
                if before.not_before:  # It has failed: try again now, and count from the start.
                    before = replace(before, not_before=0.0, starts=[], reason="")
                    before.write(self.folder(before.name))
                return before
            if before and not replaces:
                raise RefusedError(
                    f"an experiment {record.name} is {before.state} with other files",
                    f"volley submit ... --name OTHER (or volley stop {record.name})",
                )
            for other in self.records() if replaces else []:
                if other.up and other.name != record.name and not other.over:
                    before = before or other
                    self._stop(other)
            order = before.order if before else self._order(record.now)
            record = replace(record, order=order, submitted=time.time())
            record.write(content)
            if there and there.live:
                content.rename(self._emptied(f".next-{record.name}"))
                replace(there, wish="replace").write(self.folder(record.name))
            else:
                self._place(content, record.name)
        return record

    def place_next(self, name: str) -> None:
        """Puts the replacement of a stopped experiment into the queue."""
        with self._locked():
            content = self.root / f".next-{name}"
            if content.exists():
                self._place(content, name)

    def stop(self, name: str) -> Record:
        """Stops an experiment that waits, and asks the queue to stop one that trains."""
        with self._locked():
            return self._stop(self.get(name))

    def resume(self, name: str) -> Record:
        """Puts a stopped or failed experiment at the end of the queue.

        Raises:
            RefusedError: It has finished, or the cluster is going to sleep.
        """
        with self._locked():
            check_awake()
            record = self.get(name)
            if record.state == "FINISHED":
                submit = f"volley submit EXPERIMENT --name {name}"
                raise RefusedError(f"{name} has finished", submit)
            if record.over:
                record = record.submitted_again(time.time(), self._order())
                record.write(self.folder(name))
        return record

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.root / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _stop(self, record: Record) -> Record:
        if record.live:
            record = replace(record, wish="stop")
        elif not record.over:
            record = replace(record, state="STOPPED", reason="stopped", ended=time.time())
        record.write(self.folder(record.name))
        return record

    def _order(self, now: bool = False) -> int:
        """Returns a place at the end of the queue, or before all unfinished experiments."""
        if now:
            waiting = (record.order for record in self.records() if not record.over)
            return min(waiting, default=1) - 1
        return max((record.order for record in self.records()), default=0) + 1

    def _place(self, content: Path, name: str) -> None:
        """Makes `content` the experiment's folder, in place of an existing one."""
        old = self._emptied(f".old-{name}")
        if self.folder(name).exists():
            self.folder(name).rename(old)
        content.rename(self.folder(name))
        shutil.rmtree(old, ignore_errors=True)

    def _emptied(self, name: str) -> Path:
        shutil.rmtree(self.root / name, ignore_errors=True)
        return self.root / name


def check_awake() -> None:
    """Raises RefusedError while the cluster is going to sleep."""
    if is_going_to_sleep():
        raise RefusedError("the cluster is going to sleep", "volley start")


def _same(record: Record, other: Record) -> bool:
    return (record.submitted, record.state, record.wish) == (
        other.submitted,
        other.state,
        other.wish,
    )
