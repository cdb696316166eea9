"""Copies the output of experiments to the journal, each line with the experiment's name."""

from __future__ import annotations

from pathlib import Path

from .record import OUTPUT
from .store import Store

MOST_BYTES = 2**20
"""Copied of one experiment at a time."""


class JournalCopy:
    """Remembers how far the output of each experiment was copied."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # Earlier lines stay in the files alone.
        self._copied = {path: path.stat().st_size for path in self._outputs()}

    def copy(self) -> None:
        """Prints the new lines."""
        for path in self._outputs():
            start = self._copied.get(path, 0)
            if path.stat().st_size < start:
                start = 0  # Another experiment has replaced it.
            with path.open("rb") as file:
                file.seek(start)
                new = file.read(MOST_BYTES)
            whole = new[: new.rfind(b"\n") + 1]
            self._copied[path] = start + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                print(f"{path.parent.name}: {line}", flush=True)

    def _outputs(self) -> list[Path]:
        return list(self._store.root.glob(f"[a-z0-9]*/{OUTPUT}"))
