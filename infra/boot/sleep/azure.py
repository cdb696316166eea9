"""What the head asks of Azure as it goes to sleep."""

from __future__ import annotations

import time

from ..autoscaler.management import (
    CHANGED,
    ENDPOINT,
    NO_ANSWER,
    Management,
    ManagementError,
    machine_token,
)
from ..autoscaler.scale_set import VERSION, ScaleSet

POLL_S = 5.0
WORKERS_GONE_S = 600.0
BY_NAME_S = 30.0
"""A worker that the capacity has not begun to delete after so long is deleted by name."""
DELETE_AGAIN_S = 120.0


class WorkersStayError(Exception):
    """Workers are still there after a long wait."""


class Cloud:
    """Raises ManagementError wherever Azure does not answer as asked."""

    def __init__(self, scale_set: str, head_vm: str) -> None:
        self._management = Management(machine_token(), ENDPOINT)
        self._scale_set = ScaleSet(self._management, scale_set)
        self._head_vm = head_vm

    def check(self) -> None:
        """Asks for what is needed first, while nothing has been stopped yet."""
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
        self._management.write("POST", f"{self._head_vm}/deallocate", VERSION, {})

    def _empty(self) -> None:
        """Sets the capacity to 0; a request that is lost, or late, is made again by the caller."""
        known = self._scale_set.capacity()
        if known.machines:
            try:
                self._scale_set.set_capacity(known, 0)
            except ManagementError as error:
                if error.status not in {NO_ANSWER, CHANGED}:
                    raise
