"""The asynchronous operations that Azure has begun for the autoscaler."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from .management import Management, ManagementError, Operation

FORGOTTEN_S = 3600.0
"""An operation that Azure says nothing more of is forgotten; the list of VMs is what counts."""


@dataclass
class Operations:
    """Those that have not ended, by URL: when each began, and the VMs that it deletes.

    One that deletes none makes the scale set grow.
    """

    _found: dict[str, tuple[float, tuple[str, ...]]] = field(default_factory=dict)

    def add(self, url: str, deletes: tuple[str, ...] = ()) -> None:
        """Adds an operation; an empty URL is of one that Azure has done at once."""
        if url:
            self._found[url] = time.time(), deletes

    @property
    def growing(self) -> bool:
        return any(not deletes for _, deletes in self._found.values())

    def take_ended(self, management: Management) -> list[tuple[Operation, tuple[str, ...]]]:
        """Returns the operations that have ended, each with the VMs that it deletes."""
        ended = []
        for url, (began, deletes) in list(self._found.items()):
            try:
                operation = management.operation(url)
            except ManagementError:
                if time.time() - began > FORGOTTEN_S:
                    del self._found[url]
                continue
            if operation.ended:
                del self._found[url]
                ended.append((operation, deletes))
        return ended
