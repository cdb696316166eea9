"""Azure Resource Manager's part in every request: permissions, and operations that take a while.

https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from rehearsal.azure.azure_errors import ArmError, RefusedError
from rehearsal.azure.http_server import Answer
from rehearsal.azure.management.management_faults import Faults
from rehearsal.azure.management.scale_set_changes import SetMachines
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import Properties
from rehearsal.azure.resources.roles import is_allowed, role_assignments

COMPUTE = "Microsoft.Compute"


@dataclass(frozen=True)
class Operation:
    """An operation; its result is decided when it begins."""

    group_id: str
    """The resource group that it changes."""
    until: float
    error: ArmError | None = None

    def body(self, name: str, now: float) -> Properties:
        if now < self.until:
            return {"name": name, "status": "InProgress"}
        if self.error is None:
            return {"name": name, "status": "Succeeded"}
        return {"name": name, "status": "Failed", **self.error.body}


@dataclass(frozen=True)
class Request:
    """A request, with the parts of its path by name."""

    method: str
    path: str
    query: Mapping[str, str]
    if_match: str
    body: Properties
    base: str
    """The start of the links in the answer."""
    principal: str
    parts: Mapping[str, str]
    faults: Faults
    """Faults that may affect this request."""


@dataclass(frozen=True)
class RequestContext:
    """The state that the answers to all requests share."""

    azure: Azure
    machines: SetMachines
    page: int
    """Machines per page of a list."""
    operations: dict[str, Operation] = field(default_factory=dict)
    """By name."""

    def allow(self, request: Request, action: str, scope: str) -> None:
        """Refuses the request unless its principal may do this."""
        assignments = role_assignments(self.azure.resources())
        if not is_allowed(assignments, request.principal, action, scope, time.time()):
            raise forbidden(request.principal, action, scope)

    def accepted(
        self,
        request: Request,
        location: str,
        error: ArmError | None = None,
        body: Properties | None = None,
    ) -> Answer:
        """Begins an operation, which may end in an error; returns the answer that names it."""
        until = time.time() + self.machines.operation_s
        name = str(uuid.uuid4())
        self.operations[name] = Operation(request.parts["group"], until, error)
        subscription = request.path.split("/")[2]
        provider = f"/subscriptions/{subscription}/providers/{COMPUTE}"
        path = f"{provider}/locations/{location}/operations/{name}"
        url = f"{request.base}{path}?api-version=2024-07-01"
        return Answer(202, body, {"Azure-AsyncOperation": url, "Retry-After": "1"})

    def get_operation(self, request: Request) -> Answer:
        name = request.parts["name"]
        operation = self.operations.get(name)
        if operation is None:
            raise RefusedError(404, "NotFound", f"No operation is called {name}.")
        self.allow(request, f"{COMPUTE}/locations/operations/read", operation.group_id)
        return Answer(200, operation.body(name, time.time()))


def forbidden(principal: str, action: str, scope: str) -> RefusedError:
    return RefusedError(
        403,
        "AuthorizationFailed",
        f"The client '{principal}' does not have authorization to perform action '{action}' over "
        f"scope '{scope}'. If access was recently granted, please refresh your credentials.",
    )
