"""The requests to Azure on the way to sleep: delete the workers, deallocate the head."""

import time

from ..autoscaler.scale_set import VERSION, ScaleSet
from ..cluster_settings import ClusterSettings
from ..resource_manager import (
    CHANGED,
    NO_ANSWER,
    ResourceManager,
    ResourceManagerError,
    for_machine,
)

POLL_S = 5.0
WORKERS_GONE_S = 600.0
BY_NAME_S = 30.0
"""If the change of capacity has not begun to delete a worker by then, it is deleted by name."""
DELETE_AGAIN_S = 120.0


class WorkersStayError(Exception):
    """Workers are still there after a long wait."""


class Cloud:
    """Each method raises ResourceManagerError if Azure refuses or does not answer."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._azure: ResourceManager = for_machine(settings.endpoint)
        self._scale_set = ScaleSet(self._azure, settings.scale_set)
        self._head_vm = settings.head_vm

    def check(self) -> None:
        """Makes the first request while nothing has been stopped yet."""
        self._scale_set.machines()

    def delete_workers(self) -> None:
        """Deletes all workers and waits until none is listed."""
        end = time.monotonic() + WORKERS_GONE_S
        delete_at: dict[str, float] = {}
        while True:
            self._empty()
            machines = self._scale_set.machines()
            if not machines:
                return
            now = time.monotonic()
            if now > end:
                names = ", ".join(vm.name for vm in machines)
                raise WorkersStayError(f"still there after {WORKERS_GONE_S / 60:.0f} min: {names}")
            staying = [vm.name for vm in machines if vm.state != "Deleting"]
            due = [name for name in staying if delete_at.setdefault(name, now + BY_NAME_S) <= now]
            if due:
                self._scale_set.delete(due)
                delete_at.update(dict.fromkeys(due, now + DELETE_AGAIN_S))
            time.sleep(POLL_S)

    def deallocate_head(self) -> None:
        """Requests it; if the answer is lost, Azure may have accepted the request."""
        try:
            self._azure.write("POST", f"{self._head_vm}/deallocate", VERSION, {}, repeatable=True)
        except ResourceManagerError as error:
            if error.status != NO_ANSWER:
                raise

    def _empty(self) -> None:
        """Sets the capacity to 0; the caller repeats a lost or late request."""
        capacity = self._scale_set.capacity()
        if capacity.machines:
            try:
                self._scale_set.set_capacity(capacity, 0)
            except ResourceManagerError as error:
                if error.status not in {NO_ANSWER, CHANGED}:
                    raise
