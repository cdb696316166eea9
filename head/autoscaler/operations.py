"""The asynchronous operations that the autoscaler has started in Azure."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..resource_manager import Operation, ResourceManager, ResourceManagerError

FORGOTTEN_S = 3600.0
"""An operation whose state Azure does not tell is dropped then; the list of VMs counts."""


@dataclass
class Operations:
    """The operations that have not ended.

    An operation that deletes no VMs makes the scale set grow.
    """

    _pending: dict[str, tuple[float, tuple[str, ...]]] = field(default_factory=dict)

    def add(self, url: str, deletes: tuple[str, ...] = ()) -> None:
        """Adds an operation; an empty URL means that Azure has finished already."""
        if url:
            self._pending[url] = time.time(), deletes

    @property
    def growing(self) -> bool:
        return any(not deletes for _, deletes in self._pending.values())

    def take_ended(self, azure: ResourceManager) -> list[tuple[Operation, tuple[str, ...]]]:
        """Returns the operations that have ended, each with the VMs that it deletes, once."""
        ended = []
        for url, (began, deletes) in list(self._pending.items()):
            try:
                operation = azure.operation(url)
            except ResourceManagerError:
                if time.time() - began > FORGOTTEN_S:
                    del self._pending[url]
                continue
            if operation.ended:
                del self._pending[url]
                ended.append((operation, deletes))
        return ended
