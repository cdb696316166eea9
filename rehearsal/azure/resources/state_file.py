"""Azure's state in a file, since each `pulumi up` is a separate process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rehearsal import shared_file
from rehearsal.azure.azure_errors import AzureError
from rehearsal.azure.resources.refusals import Hold
from rehearsal.azure.resources.resource_kinds import Resource


@dataclass
class State:
    resources: dict[str, Resource] = field(default_factory=dict)
    """By their ids, the oldest first."""
    holds: list[Hold] = field(default_factory=list)

    def refuse_held(self, operation: str, resource_id: str, by: str = "") -> None:
        """Raises AzureError while the operation is refused."""
        now = time.time()
        for hold in self.holds:
            if hold.refuses(operation, resource_id, by, now):
                raise AzureError(hold.error)

    def lingers_in(self, group_id: str) -> bool:
        """Returns whether something in a group cannot be deleted yet."""
        now = time.time()
        return any(
            hold.operation == "delete"
            and hold.until > now
            and hold.resource_id.startswith(group_id)
            for hold in self.holds
        )


@dataclass(frozen=True)
class StateFile:
    """The file; methods may be called from several processes and threads."""

    path: Path

    def read(self) -> State:
        return shared_file.read(self.path, State)

    @contextmanager
    def changed(self) -> Iterator[State]:
        """Yields the state without expired holds; does not write it after an exception."""
        with shared_file.changed(self.path, State) as state:
            now = time.time()
            state.holds = [hold for hold in state.holds if hold.until > now]
            yield state
