"""Asynchronous operations of Azure Resource Manager: each takes a while and then has a result."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field

from rehearsal.azure.azure_errors import ArmError
from rehearsal.azure.management.response_bodies import Json, error_body


@dataclass(frozen=True)
class Operation:
    """An operation; its result is decided when it begins."""

    group_id: str
    """The resource group that it changes."""
    until: float
    error: ArmError | None = None

    def body(self, name: str, now: float) -> Json:
        if now < self.until:
            return {"name": name, "status": "InProgress"}
        if self.error is None:
            return {"name": name, "status": "Succeeded"}
        failure = error_body(self.error.code, self.error.message)
        return {"name": name, "status": "Failed", **failure}


@dataclass
class Operations:
    """All operations, by name; methods may be called from several threads."""

    by_name: dict[str, Operation] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, operation: Operation) -> str:
        """Adds an operation; returns its name."""
        with self.lock:
            name = str(uuid.uuid4())
            self.by_name[name] = operation
            return name
