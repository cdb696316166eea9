"""The runs in the results account: changed files are uploaded, a new head gets them in an archive.

A file is saved for itself: what cannot be saved keeps no other file from it.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from tarfile import SYMTYPE, TarFile, TarInfo
from tempfile import TemporaryFile
from typing import BinaryIO

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.blob import BlobClient, ContainerClient

from .marks import change_of, is_same
from .queue.record import OUTPUT
from .run_files import Prefix, entries, is_plain, opened

SAVE_S = 10 * 60.0
"""Limit of one save: what is left then is saved by the next one. A request has limits of its own:
the SDK waits 60 s for a byte, and repeats it three times."""
SMALL = 64 * 2**20
"""Files up to this size are saved before larger ones, and in one request."""
PIECE = 4 * 2**20
"""Bytes that an append adds at most."""
TAIL = 64 * 2**10
"""The last bytes of what was saved of a log: if they are unchanged, the log has only grown."""
LINK = {"link": "true"}
"""Metadata of a blob that contains the target of a symbolic link."""
MTIME = "mtime_ns"
"""Metadata of a blob with a file's content."""
REFUSED = {401, 403, 429}
"""Azure's answers that concern all files. So do those from 500 on."""
BAD_NAME = 400
"""Azure's answer to a name that a blob cannot have."""
NOT_AS_BEFORE = {404, 409, 412}
"""Azure's answers to an append where the blob is gone, full, or has another length or type."""


class SavedRuns:
    """The runs of this machine and their copy in the results account."""

    prefix = "runs"
    """Of the names of the blobs."""

    def __init__(self, runs: Path, marks: Path, blobs: ContainerClient) -> None:
        self._runs, self._blobs = runs, blobs
        self._marks = marks
        """Contains a file for each file of the runs that is in Blob, with the state that was saved:
        a file's `change_of`, of a log also `tail_of`, or the target of a link."""
        self._problem: Exception | None = None
        self._larger = False
        """Whether there are larger files to save."""

    def save(self) -> None:
        """Uploads what has changed, and deletes checkpoints that the run has rotated away.

        Raises:
            AzureError: The account cannot be reached, or refuses the request.
            OSError: A file could not be saved. All others are.
        """
        end, self._problem = time.monotonic() + SAVE_S, None
        self._save_all(end, max_size=SMALL)
        if self._larger:
            self._save_all(end)
        for path in self._pruned():
            with self._for_itself(path):
                with suppress(ResourceNotFoundError):
                    self._blobs.delete_blob(self._blob_of(path))
                self._mark_of(path).unlink()
        if self._problem is not None:
            raise OSError(str(self._problem))

    def export(self, key: str, archive: TarFile) -> None:
        """Writes the runs of one experiment to an archive, and marks them as saved.

        The marks are right for runs with the archive's times.
        """
        now = int(time.time())
        changes = {}
        for blob in self._blobs.list_blobs(name_starts_with=f"runs/{key}/", include=["metadata"]):
            path = self._runs / PurePosixPath(blob.name).relative_to("runs")
            if ".." in path.parts:
                continue
            member = TarInfo(str(path.relative_to(self._runs / key)))
            member.mtime = now
            download = self._blobs.download_blob(blob.name)
            if blob.metadata == LINK:
                member.type, member.linkname = SYMTYPE, download.readall().decode()
                if is_plain(member.linkname):
                    archive.addfile(member)
                    changes[path] = member.linkname
                continue
            # First all of it: an archive has a file's size before its content.
            with TemporaryFile(dir=self._marks.parent) as file:
                member.size = download.readinto(file)
                file.seek(0)
                archive.addfile(member, file)
            changes[path] = f"{now * 10**9} {member.size}"
        for path, change in changes.items():
            self._remember(path, change)

    @contextmanager
    def _for_itself(self, path: Path) -> Iterator[None]:
        """Notes what concerns this file only; `save` reports it at its end."""
        try:
            yield
        except FileNotFoundError:
            pass  # An old checkpoint, removed meanwhile.
        except UnicodeError:
            stays(path, "its name is not UTF-8")
        except PermissionError as error:
            stays(path, error.strerror or "it cannot be read")
        except OSError as error:
            self._note(error)
        except HttpResponseError as error:
            status = error.status_code or 0
            if status in REFUSED or status >= 500:
                raise
            if status == BAD_NAME:
                stays(path, error.reason or "Azure refuses it")
            else:
                self._note(error)

    def _note(self, problem: Exception) -> None:
        if not isinstance(problem, FileNotFoundError):
            self._problem = problem

    def _save_all(self, end: float, max_size: float = math.inf) -> None:
        self._larger = False
        for path, folder in self._entries():
            if time.monotonic() > end:
                raise TimeoutError(f"the runs are not saved within {SAVE_S:.0f} s")
            with self._for_itself(path):
                self._save(path, folder, max_size)

    def _entries(self) -> Iterator[tuple[Path, int]]:
        """Yields what is to be saved, each with the descriptor of its folder."""
        return entries(self._runs, self._note)

    def _save(self, path: Path, folder: int, max_size: float) -> None:
        state = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        mark = self._mark_of(path)
        saved = mark.read_text() if mark.is_file() else ""
        if not saved:
            self._forget_what_was_there(mark)
        if stat.S_ISLNK(state.st_mode):
            target = os.readlink(path.name, dir_fd=folder)
            if target != saved and is_plain(target):
                self._upload(path, target.encode(), metadata=LINK)
                self._remember(path, target)
        elif not stat.S_ISREG(state.st_mode) or is_same(saved, state):
            return
        elif state.st_size > max_size:
            self._larger = True
        else:
            self._remember(path, self._save_file(path, folder, saved))

    def _forget_what_was_there(self, mark: Path) -> None:
        """Deletes what is saved of a folder that is a file now, or of a file that is a folder now.

        A new head could not restore both.
        """
        replaced = [parent for parent in mark.parents if parent.is_file()]
        replaced += [file for file in mark.rglob("*") if file.is_file()]
        for old in replaced:
            with suppress(ResourceNotFoundError):
                self._blobs.delete_blob(self._blob_of(self._runs / old.relative_to(self._marks)))
            old.unlink()
        if mark.is_dir():
            shutil.rmtree(mark)

    def _save_file(self, path: Path, folder: int, saved: str) -> str:
        """Returns the state of what it has saved."""
        with opened(path.name, folder) as (file, state):
            prefix = Prefix(file, state.st_size, path)
            if not is_log(path.name):
                # With the head's own time, a laptop knows which files it has: volley/pull.py.
                self._upload(path, prefix, {MTIME: str(state.st_mtime_ns)})
                return change_of(state)
            blob = self._blobs.get_blob_client(self._blob_of(path))
            start = saved_length(file, state.st_size, saved)
            try:
                append(blob, prefix, start)
            except HttpResponseError as error:
                if error.status_code not in NOT_AS_BEFORE:
                    raise
                self._append_again(path, blob, prefix, start)
            return f"{change_of(state)} {tail_of(file, state.st_size)}"

    def _append_again(self, path: Path, blob: BlobClient, prefix: Prefix, start: int) -> None:
        """Appends after a refusal: the blob has another length than this machine knows of."""
        with suppress(ResourceNotFoundError):
            length = blob.get_blob_properties().size
            if start < length <= prefix.size:
                # The answer to the last append was lost, or not noted.
                append(blob, prefix, length)
                return
        try:
            append(blob, prefix, 0)
        except HttpResponseError as error:
            if error.status_code not in NOT_AS_BEFORE:
                raise
            # It has versions of another type, from an account that keeps versions.
            prefix.seek(0)
            self._upload(path, prefix)

    def _upload(
        self, path: Path, content: bytes | Prefix, metadata: dict[str, str] | None = None
    ) -> None:
        length = content.size if isinstance(content, Prefix) else len(content)
        self._blobs.upload_blob(
            self._blob_of(path), content, length=length, metadata=metadata, overwrite=True
        )

    def _pruned(self) -> Iterator[Path]:
        """Yields saved files of checkpoints that the payload has removed since.

        If a whole run folder is gone, a person has removed it: its saved files are kept. Folders of
        marks that are empty by then go: weeks of checkpoints leave many.
        """
        for folder, _, names in os.walk(self._marks, topdown=False):
            place = self._runs / Path(folder).relative_to(self._marks)
            here = [place, *place.parents]
            checkpoints = next((path for path in here if path.name == "checkpoints"), None)
            if checkpoints is None or not checkpoints.is_dir():
                continue
            yield from (place / name for name in names if not os.path.lexists(place / name))
            if not os.path.lexists(place):
                with suppress(OSError):  # Not empty: Azure has refused to delete a file.
                    os.rmdir(folder)

    def _remember(self, path: Path, change: str) -> None:
        mark = self._mark_of(path)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(change)

    def _mark_of(self, path: Path) -> Path:
        return self._marks / path.relative_to(self._runs)

    def _blob_of(self, path: Path) -> str:
        return f"{self.prefix}/{path.relative_to(self._runs)}"


def append(blob: BlobClient, prefix: Prefix, start: int) -> None:
    """Adds what follows after `start` bytes; from 0 on, it recreates the blob."""
    if start == 0:
        blob.create_append_blob()
    prefix.seek(start)
    for position in range(start, prefix.size, PIECE):
        content = prefix.read(PIECE)
        # A repeated request appends nothing twice.
        blob.append_block(content, length=len(content), appendpos_condition=position)


def is_log(name: str) -> bool:
    """Returns whether a file of this name only grows: curves, logs, TensorBoard's."""
    return name in ("progress.csv", "driver_log.txt", OUTPUT) or name.startswith(
        "events.out.tfevents."
    )


def saved_length(file: BinaryIO, size: int, saved: str) -> int:
    """Returns how much of a log is saved and unchanged; 0 if it has been rewritten."""
    _, length, tail, *_ = [*saved.split(" "), "", ""]
    if not tail or not length.isdecimal() or int(length) > size:
        return 0
    return int(length) if tail_of(file, int(length)) == tail else 0


def tail_of(file: BinaryIO, length: int) -> str:
    """Returns a hash of the last bytes of the first `length`."""
    start = max(0, length - TAIL)
    file.seek(start)
    return hashlib.sha256(file.read(length - start)).hexdigest()


def stays(path: Path, reason: str) -> None:
    print(f"{str(path)!a} stays on the head: {reason}", file=sys.stderr, flush=True)
