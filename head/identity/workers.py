"""The workers' scale set, for Ray's user: up to maxWorkers of them, and no other machine.

How the capacity follows from the number of workers is decided here, since Azure's capacity may have
to exceed it: see next_capacity.
"""

from __future__ import annotations

from time import monotonic

from ..autoscaler.growth import SETTLE_S, next_capacity
from ..autoscaler.scale_set import ScaleSet, VirtualMachine
from ..cluster_settings import read_settings
from ..resource_manager import (
    CHANGED,
    Operation,
    ResourceManager,
    ResourceManagerError,
)

FORBIDDEN = 403
MANY = 1000
"""Operations to remember. Azure is asked about their URLs only: the token would open others."""


class Workers:
    """Each method raises ResourceManagerError if Azure refuses or does not answer."""

    def __init__(self, azure: ResourceManager, scale_set: str) -> None:
        self._azure, self._scale_set = azure, ScaleSet(azure, scale_set)
        self._listed: list[VirtualMachine] | None = None
        self._settled_at = 0.0
        self._gone: set[str] = set()
        """Workers that were deleted by name or evicted, and that the capacity may still count."""
        self._operations: dict[str, None] = {}

    def machines(self) -> list[VirtualMachine]:
        """Returns all VMs of the scale set, including those being deleted."""
        before, self._listed = self._listed, self._scale_set.machines()
        if before is None:
            self._settle()
        else:
            self._gone.update({vm.name for vm in before} - self._names())
        return self._listed

    def grow(self, wanted: int, growing: bool) -> str:
        """Raises the capacity if that is due.

        Args:
            wanted: Workers that Ray's autoscaler wants.
            growing: Whether an operation that adds workers has not ended.

        Returns:
            The operation's URL; "" if nothing was requested, or Azure has finished.

        Raises:
            ResourceManagerError: There would be more workers than the stack allows, too.
        """
        if type(wanted) is not int:
            raise TypeError("wanted: a whole number")
        settings = read_settings()
        most = settings.max_workers if settings else 0
        if wanted > most:
            # Ray's autoscaler may know a new maximum first: it asks again in its next update.
            raise ResourceManagerError(
                CHANGED, "", f"{wanted} workers are more than maxWorkers: {most}"
            )
        listed = len(self._names())
        if wanted <= listed:
            return ""
        capacity = self._scale_set.capacity()
        if wanted <= capacity.machines and growing:
            return ""
        if listed < capacity.machines:  # The list may be older than the capacity.
            listed = len(self.machines())
        gone = self._gone - self._names()
        if wanted <= listed:
            return ""
        settled = monotonic() >= self._settled_at or capacity.machines - listed <= len(gone)
        machines = next_capacity(wanted, capacity.machines, listed, settled)
        if machines == 0 or listed >= capacity.machines:
            self._gone -= gone  # The capacity does not count them any more.
        if machines is None:
            return ""
        self._settle()  # Azure may do it without an answer.
        return self._remembered(self._scale_set.set_capacity(capacity, machines))

    def delete(self, names: list[str]) -> str:
        """Deletes workers; returns the operation's URL."""
        if not self._names().issuperset(names):
            self.machines()
        if strangers := set(names) - self._names():
            raise ResourceManagerError(
                FORBIDDEN, "", f"not a worker: {', '.join(sorted(map(str, strangers)))}"
            )
        self._gone.update(names)
        return self._remembered(self._scale_set.delete(names))

    def operation(self, url: str) -> Operation:
        """Returns the state of an operation that was begun here; any other one is over."""
        if url not in self._operations:
            return Operation("Canceled")
        operation = self._azure.operation(url)
        if operation.ended:
            del self._operations[url]
        if operation.failed:
            self._settled_at = 0.0  # Nothing is on its way.
        return operation

    def _names(self) -> set[str]:
        if self._listed is None:
            self.machines()
        return {vm.name for vm in self._listed or []}

    def _settle(self) -> None:
        """From now on VMs may be on their way that the list does not show yet."""
        self._settled_at = monotonic() + SETTLE_S

    def _remembered(self, url: str) -> str:
        if url:
            self._operations[url] = None
        while len(self._operations) > MANY:
            del self._operations[next(iter(self._operations))]
        return url
