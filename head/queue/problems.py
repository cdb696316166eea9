"""Isolates the errors of one experiment: its reason shows them, and the others continue."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .store import Store


class Problems:
    """The problems of a step of the queue, which the next step meets again or not."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._now: dict[str, str] = {}
        """By the name of the experiment."""
        self._before: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._now

    def __bool__(self) -> bool:
        return bool(self._now)

    def begin_step(self) -> None:
        self._before, self._now = self._now, {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Keeps an error inside from the other experiments: a damaged file, or a full disk."""
        try:
            yield
        except Exception as error:
            problem = " ".join(f"the queue fails: {type(error).__name__}: {error}".split())
            self._now[name] = problem
            if self._before.get(name) != problem:
                traceback.print_exc()
                print(f"{name}: {problem}", flush=True)
            with suppress(OSError):  # The disk is full; the next step writes it.
                self._store.note(name, problem)

    def end_step(self) -> None:
        """Clears the reasons of problems that no longer occur."""
        for name in self._before.keys() - self._now.keys():
            with suppress(OSError):
                self._store.note(name, "", instead_of=self._before[name])
