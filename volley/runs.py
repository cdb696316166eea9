"""Runs of experiments that are not on this machine: their list, and their files as they arrive."""

import json
import sys
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import PurePosixPath
from typing import IO, Any, Protocol

from head.archive import open_stream
from payload.errors import UserError
from volley.errors import refused
from volley.head import Head

MAX_IN_MEMORY = 256 * 2**20


class Runs(Protocol):
    """The runs of experiments: the head's, or those in the results account."""

    def listing(self, name: str) -> dict[str, Any]:
        """Returns volley-head's manifest of an experiment."""

    def files(
        self, name: str, paths: Sequence[str]
    ) -> AbstractContextManager[Iterator[tuple[str, int, IO[bytes]]]]:
        """Reads files of an experiment, without those that do not exist: path, bytes, content."""


class RunsOfHead:
    def __init__(self, head: Head) -> None:
        self._head = head

    def listing(self, name: str) -> dict[str, Any]:
        """Returns volley-head's manifest; runs that the head has removed are restored before.

        Raises:
            UserError: The head refuses, the connection was lost, or they cannot be restored.
        """
        answer = self._head.ask("manifest", name)
        if answer.get("removed"):
            if sys.stderr.isatty():
                print(f"The head restores {name} from the results account ...", file=sys.stderr)
            unit = f"restore-runs@{PurePosixPath(answer['root']).name}.service"
            if self._head.systemctl("start", unit):
                raise refused(
                    f"the head cannot restore the runs of {name}", f"volley logs --unit {unit}"
                )
            answer = self._head.ask("manifest", name)
        return answer

    @contextmanager
    def files(
        self, name: str, paths: Sequence[str]
    ) -> Iterator[Iterator[tuple[str, int, IO[bytes]]]]:
        """Reads files as they arrive.

        Raises:
            UserError: The head refuses, or the connection was lost.
        """
        wanted = json.dumps(list(paths)).encode()
        with self._head.reading("files", name, stdin=wanted) as stream, _archive(stream) as archive:
            yield _contents(archive)


def _contents(archive: tarfile.TarFile) -> Iterator[tuple[str, int, IO[bytes]]]:
    for member in archive:
        content = archive.extractfile(member) if member.isreg() else None
        if content is not None:
            yield member.name.removeprefix("./"), member.size, content


def read_files(runs: Runs, name: str, paths: Sequence[str]) -> dict[str, bytes]:
    """Returns the content of files of an experiment's runs, without those that do not exist.

    Raises:
        UserError: The head refuses, or the connection was lost.
    """
    contents = {}
    with runs.files(name, paths) as files:
        for path, size, content in files:
            if path in paths:
                if size > MAX_IN_MEMORY:
                    raise UserError(f"{path}: is too large to read: {size:,} bytes")
                contents[path] = content.read()
    return contents


@contextmanager
def _archive(stream: IO[bytes]) -> Iterator[tarfile.TarFile]:
    """Opens a tar stream; raises EOFError if the stream is cut."""
    try:
        with open_stream(stream) as archive:
            yield archive
    except tarfile.ReadError as error:
        raise EOFError(str(error)) from None
