"""Tells whom an experiment names of its end: `notify`.

The queue starts a process for each end that has not been told, as its own user, and waits for
none. head.queue.notices FOLDER is this process: it tells the URL or the command, and records that.
So an end is told once, also if the queue or the head goes away meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from ..files import read_json
from ..notification import (
    QUEUES_PAUSES_S,
    Notification,
    NotifyError,
    deliver,
    end_time,
    target_of,
)
from ..paths import COST, SECRETS
from ..sleep.shares import dollars_by_key
from ..sleep_record import record_of_this_boot
from .plan import with_secrets
from .record import Record, read_record, read_status
from .store import Store

STATES = {"FINISHED": "FINISHED", "FAILED": "FAILED", "STOPPED": "KILLED"}
"""MLflow's state for each one of the queue."""
CLOSING_S = 8.0
"""How long a queue that ends waits for what is being told: the next one repeats what was not."""
AGAIN_S = 60.0
"""After this time a process is started again that was killed, or found no disk space."""
SOURCE = "source"
"""The experiment's source_directory: SOURCE in payload/parcel.py."""
EXPORTED = re.compile(r"^export (\w+)=", re.MULTILINE)


@dataclass(frozen=True)
class End:
    """What an experiment's `notify` is told."""

    key: str
    """Record.told, once it has been."""
    state: str
    reason: str
    time: float


@dataclass(frozen=True)
class Telling:
    """A process that tells an end."""

    key: str
    process: subprocess.Popen[bytes]
    since: float = field(default_factory=time.monotonic)

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.since


class Notices:
    """The processes that tell the ends of a store's experiments."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._telling: dict[str, Telling] = {}
        """The last one by the name of the experiment."""

    def look(self) -> None:
        """Starts a process for each end that has not been told."""
        for record in self._store.records():
            end, last = end_of(record), self._telling.get(record.name)
            if end is None or (last and last.key == end.key and not _again(last)):
                continue
            folder = self._store.folder(record.name)
            command = shlex.join([sys.executable, "-m", "head.queue.notices", str(folder)])
            line = f"{with_secrets(record.name)}; exec {command}"
            try:
                process = subprocess.Popen(["/bin/sh", "-c", line], start_new_session=True)
            except OSError as error:  # The next step tries again.
                print(f"{record.name}: nobody is notified yet: {error}", flush=True)
            else:
                self._telling[record.name] = Telling(end.key, process)

    def hold(self) -> bool:
        """Whether a queue that ends should wait a little longer."""
        telling = self._telling.values()
        return any(each.process.poll() is None and each.age_s < CLOSING_S for each in telling)


def _again(last: Telling) -> bool:
    """Whether a process has failed before it told anybody, some time ago."""
    return last.process.poll() not in (None, 0) and last.age_s > AGAIN_S


def end_of(record: Record) -> End | None:
    """Returns the end that is to be told now; None if there is none, or it has been told.

    The cluster's sleep is one for an experiment that it interrupts: at `budget` or `max_hours`, or
    because somebody wanted it.
    """
    end = None
    if not record.notify:
        return None
    if record.over:
        ended = record.ended or 0.0
        end = End(f"{ended}", STATES[record.state], record.reason, ended)
    elif record.live and (sleep := record_of_this_boot()) and sleep.going and sleep.whatever_runs:
        reason = f"the cluster is going to sleep: {sleep.why}; continues after volley start"
        end = End(f"sleep {sleep.boot}", "KILLED", reason, time.time())
    return end if end and end.key != record.told else None


def main(folder: Path) -> int:
    """Tells the end of one experiment, unless another process does or has."""
    with (folder / ".telling").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # An earlier queue's process may be at it.
        record = read_record(folder)
        end = end_of(record) if record else None
        if record is None or end is None:
            return 0
        problem = _tell(folder, record, end)
        print(f"{record.name}: {_in_words(problem)}", flush=True)
        try:
            Store(folder.parent).change(record, told=end.key, untold=problem)
        except OSError as error:  # The notice was sent, so this does not count as a failure.
            print(f"{record.name}: the notification cannot be recorded: {error}", flush=True)
    return 0


def _in_words(problem: str) -> str:
    return f"nobody was notified: {problem}" if problem else "the notification of its end was sent"


def _tell(folder: Path, record: Record, end: End) -> str:
    """Returns "", or why nobody has been told."""
    status = read_status(folder)
    notification = Notification(
        name=record.name,
        env=record.env or None,
        algorithm=record.algorithm or None,
        state=end.state,
        reason=end.reason,
        time=end_time(end.time),
        steps=status.get("env_steps"),
        best_return=status.get("best_return"),
        last_return=status.get("episode_return"),
        run_id=status.get("mlflow_run"),
        cost=dollars_by_key(read_json(COST)).get(record.key),
    ).without(_secrets(folder.name))
    source = folder / SOURCE
    place = source if source.is_dir() else folder
    environment = {name: v for name, v in os.environ.items() if name != "NOTIFY_SOCKET"}
    try:
        target = target_of(record.notify, environment)
    except NotifyError as error:
        return f"{error}: volley submit sends it"
    return deliver(target, notification, place, environment, True, QUEUES_PAUSES_S)


def _secrets(name: str) -> list[str]:
    """Returns the values of an experiment's secrets, which the shell has read."""
    file = SECRETS / name
    text = file.read_text() if file.is_file() else ""
    return [os.environ.get(secret, "") for secret in EXPORTED.findall(text)]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
