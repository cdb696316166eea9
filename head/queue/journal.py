"""The experiments' output in the queue's journal: `volley logs --unit experiments`."""

import os
from pathlib import Path

from ..files import open_file
from .record import OUTPUT
from .store import Store

MOST_BYTES = 2**20
"""Output of one experiment that is copied at a time; a line that is longer is cut there."""


class JournalCopy:
    """Remembers how far the output of each experiment was copied."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._copied: dict[Path, tuple[int, int]] = {}
        """The file's inode, and the bytes that were copied."""
        for path in self._outputs():
            self._copy(path, silent=True)  # Earlier lines are not copied.

    def copy(self) -> None:
        for path in self._outputs():
            self._copy(path)

    def _copy(self, path: Path, silent: bool = False) -> None:
        try:
            with open_file(path) as file:
                state = os.fstat(file.fileno())
                inode, start = self._copied.get(path, (state.st_ino, 0))
                if inode != state.st_ino or state.st_size < start:
                    start = 0  # Another experiment has replaced it.
                file.seek(state.st_size if silent else start)
                new = file.read(MOST_BYTES)
        except OSError:  # The queue's step reports it.
            return
        whole = new if len(new) == MOST_BYTES and b"\n" not in new else new[: new.rfind(b"\n") + 1]
        self._copied[path] = (state.st_ino, state.st_size if silent else start + len(whole))
        for line in whole.decode(errors="replace").splitlines():
            print(f"{path.parent.name}: {line}", flush=True)

    def _outputs(self) -> list[Path]:
        return list(self._store.root.glob(f"[a-z0-9]*/{OUTPUT}"))
