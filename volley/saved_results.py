"""What the results account has, as the head would answer: experiments, logs and runs.

The head saves them, see head/results.py; nothing here is newer than its last save.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, cast

from head.queue.record import OUTPUT, SAVED_OUTPUTS, SAVED_QUEUE
from payload.errors import nearest
from volley.errors import refused
from volley.results_account import Account, connect, in_words

if TYPE_CHECKING:
    from azure.storage.blob import BlobProperties, ContainerClient

RUNS, DRIVER = "runs/", "driver_log.txt"
KEY = re.compile(r"(?P<name>[a-z0-9][a-z0-9-]*)-[0-9a-f]{12}")
"""The key of an experiment's runs: see head/queue/plan.py."""
NOTEBOOKS = "notebooks"
TAIL = 8 * 2**20
"""Bytes of a log that are read for its last lines."""
LINES = 100
SAVED = "SAVED"
"""The state of runs of which the queue knows nothing any more."""


class SavedResults:
    """The results account in place of a head that is off."""

    def __init__(self, account: Account, blobs: ContainerClient | None = None) -> None:
        """
        Args:
            blobs: The container; None to connect.

        Raises:
            UserError: A package is not installed.
        """
        self.account = account
        self._blobs = connect(account) if blobs is None else blobs

    def status(self) -> dict[str, Any]:
        """Returns the experiments as of the last save: those of the queue, and older runs.

        Raises:
            UserError: The account cannot be read.
        """
        with in_words(self.account):
            answer = self._queue()
            listed = {record["key"] for record in answer["experiments"]}
            for key in self._keys():
                match = KEY.fullmatch(key)
                if match and key not in listed:
                    record = {"name": match["name"], "state": SAVED, "key": key}
                    answer["experiments"].insert(0, record)
        return answer

    def listing(self, name: str) -> dict[str, Any]:
        """Returns a manifest of an experiment's runs, as volley-head's.

        Raises:
            UserError: No such experiment exists, or the account cannot be read.
        """
        from head.saved_runs import LINK

        key = self._key_of(name)
        files = []
        with in_words(self.account):
            for blob in self._blobs.list_blobs(f"{RUNS}{key}/", include=["metadata"]):
                entry = {
                    "path": blob.name.removeprefix(f"{RUNS}{key}/"),
                    "size": blob.size,
                    "mtime_ns": _mtime_ns(blob),
                }
                if blob.metadata == LINK:
                    entry["link"] = self._text(blob.name)
                files.append(entry)
        return {"root": f"{RUNS}{key}", "files": files}

    @contextmanager
    def files(
        self, name: str, paths: Sequence[str]
    ) -> Iterator[Iterator[tuple[str, int, IO[bytes]]]]:
        """Reads files of an experiment's runs: path, bytes and content of each.

        Raises:
            UserError: The account cannot be read.
        """
        key = self._key_of(name)
        with in_words(self.account):
            yield self._files(key, paths)

    def logs(self, name: str | None, lines: int | None) -> Iterator[bytes]:
        """Yields the last lines of what an experiment has printed.

        Args:
            name: None for the experiment that trained last.

        Raises:
            UserError: There is none, it has no log, or the account cannot be read.
        """
        name = name or self._last()
        with in_words(self.account):
            output = f"{SAVED_OUTPUTS}/{name}/{OUTPUT}"
            logs = [blob for blob in self._blobs.list_blobs(output) if blob.name == output]
        if not logs:  # An older head saved only the output of the runs.
            key = self._key_of(name)
            with in_words(self.account):
                blobs = self._blobs.list_blobs(f"{RUNS}{key}/")
                logs = [blob for blob in blobs if PurePosixPath(blob.name).name == DRIVER]
        if not logs:
            raise refused(f"{name} has no log in the results account", "volley status")
        newest = max(logs, key=lambda blob: blob.last_modified)
        with in_words(self.account):
            begin = max(0, newest.size - TAIL)
            # Azure refuses a range of an empty blob.
            text = self._blobs.download_blob(newest.name, offset=begin or None).readall()
        yield from deque(text.splitlines(keepends=True), lines or LINES)

    def download(self, blob: str, file: IO[bytes]) -> bool:
        """Writes a blob to a file; returns False if there is none."""
        with in_words(self.account):
            if not any(name == blob for name in self._blobs.list_blob_names(name_starts_with=blob)):
                return False
            self._blobs.download_blob(blob).readinto(file)
        return True

    def _files(self, key: str, paths: Sequence[str]) -> Iterator[tuple[str, int, IO[bytes]]]:
        from azure.core.exceptions import ResourceNotFoundError

        for path in paths:
            try:
                content = self._blobs.download_blob(f"{RUNS}{key}/{path}")
            except ResourceNotFoundError:
                continue  # A checkpoint that the head has rotated away meanwhile.
            yield path, content.size, cast("IO[bytes]", content)

    def _queue(self) -> dict[str, Any]:
        names = self._blobs.list_blob_names(name_starts_with=SAVED_QUEUE)
        if SAVED_QUEUE not in names:
            return {"time": None, "experiments": [], "cost": None, "stored": None}
        answer: dict[str, Any] = json.loads(self._text(SAVED_QUEUE))
        return answer

    def _keys(self) -> list[str]:
        return [
            prefix.name.removeprefix(RUNS).rstrip("/")
            for prefix in self._blobs.walk_blobs(RUNS, delimiter="/")
            if prefix.name.endswith("/")
        ]

    def _key_of(self, name: str) -> str:
        """Returns the key of the newest runs under a name."""
        with in_words(self.account):
            experiments = self._queue()["experiments"]
            keys = self._keys()
        if name == NOTEBOOKS and NOTEBOOKS in keys:
            return NOTEBOOKS
        of_queue = {record["name"]: str(record["key"]) for record in experiments}
        key = of_queue.get(name) or self._newest([key for key in keys if _name_of(key) == name])
        if not key:
            near = nearest(name, {*of_queue, *map(_name_of, keys)} - {""})
            raise refused(
                f"the account {self.account.name} has no experiment {name}{near}",
                "volley status --from-results",
            )
        return key

    def _newest(self, keys: Sequence[str]) -> str:
        """Returns the key whose runs were saved last; "" without keys."""
        if len(keys) < 2:
            return next(iter(keys), "")
        with in_words(self.account):
            times = {
                key: max(blob.last_modified for blob in self._blobs.list_blobs(f"{RUNS}{key}/"))
                for key in keys
            }
        return max(keys, key=lambda key: times[key])

    def _last(self) -> str:
        with in_words(self.account):
            experiments = self._queue()["experiments"]
        started = [record for record in experiments if record.get("started")]
        if not started:
            raise refused("no experiment has trained. Which log?", "volley logs NAME")
        return str(max(started, key=lambda record: record["started"])["name"])

    def _text(self, blob: str) -> str:
        content: bytes = self._blobs.download_blob(blob).readall()
        return content.decode()


def _name_of(key: str) -> str:
    match = KEY.fullmatch(key)
    return match["name"] if match else ""


def _mtime_ns(blob: BlobProperties) -> int:
    """Returns the time that a file had on the head; of a log, when it was saved last."""
    from head.saved_runs import MTIME

    given = (blob.metadata or {}).get(MTIME, "")
    return int(given) if given.isdecimal() else int(blob.last_modified.timestamp()) * 10**9
