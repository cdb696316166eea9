"""Each request that the stand-in for management.azure.com understands, and its permissions.

https://learn.microsoft.com/rest/api/compute
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from rehearsal.azure.azure_errors import ArmError
from rehearsal.azure.management.async_operations import Operation, Operations
from rehearsal.azure.management.management_faults import Faults
from rehearsal.azure.management.response_bodies import (
    Answer,
    Json,
    RefusedError,
    machine_body,
    not_found,
    refused,
    scale_set_body,
)
from rehearsal.azure.management.scale_set_changes import (
    SAID_AT_ONCE,
    SOLD_OUT,
    SetMachines,
    scale_set_of,
)
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import all_of
from rehearsal.azure.resources.roles import (
    ASSIGN_IDENTITY,
    JOIN_SUBNET,
    is_allowed,
    role_assignments,
)
from rehearsal.azure.resources.scale_set_machines import SetMachine, machines_of
from rehearsal.azure.resources.virtual_machines import NOT_RUNNING, RUNS, power_state

COMPUTE = "Microsoft.Compute"
FILTER = re.compile("'virtualMachineScaleSet/id' eq '(?P<id>[^']+)'")


@dataclass(frozen=True)
class Request:
    """A request, with the parts of its path by name."""

    method: str
    path: str
    query: Mapping[str, str]
    if_match: str
    body: Json
    base: str
    """Where the answer's links lead."""
    principal: str
    parts: Mapping[str, str]


class Requests:
    """Answers from Azure's state, each request that may be made."""

    def __init__(self, azure: Azure, machines: SetMachines, page: int) -> None:
        self._azure = azure
        self._machines = machines
        self._operations = Operations()
        self._page = page

    def get_scale_set(self, request: Request, faults: Faults) -> Answer:
        set_id = request.parts["id"]
        self._allow(request, f"{COMPUTE}/virtualMachineScaleSets/read", set_id)
        found = scale_set_of(self._azure.resources(), set_id)
        return Answer(200, scale_set_body(set_id, found))

    def resize(self, request: Request, faults: Faults) -> Answer:
        set_id, group = request.parts["id"], request.parts["group"]
        found = scale_set_of(self._azure.resources(), set_id)
        profile = found.inputs["virtualMachineProfile"]
        self._allow(request, f"{COMPUTE}/virtualMachineScaleSets/write", set_id)
        self._allow(request, f"{COMPUTE}/virtualMachines/write", group)
        for identity in (found.inputs.get("identity") or {}).get("userAssignedIdentities") or ():
            self._allow(request, ASSIGN_IDENTITY, identity)
        for interface in profile["networkProfile"]["networkInterfaceConfigurations"]:
            for configuration in interface["ipConfigurations"]:
                self._allow(request, JOIN_SUBNET, configuration["subnet"]["id"])
        capacity = int(request.body["sku"]["capacity"])
        made, error = self._machines.resize(set_id, capacity, request.if_match, faults)
        return self._begun(request, made.inputs["location"], error, scale_set_body(set_id, made))

    def delete_machines(self, request: Request, faults: Faults) -> Answer:
        set_id = request.parts["id"]
        self._allow(request, f"{COMPUTE}/virtualMachineScaleSets/delete/action", set_id)
        found = scale_set_of(self._azure.resources(), set_id)
        self._machines.delete(set_id, request.body["instanceIds"])
        return self._begun(request, found.inputs["location"])

    def list_machines(self, request: Request, faults: Faults) -> Answer:
        self._allow(request, f"{COMPUTE}/virtualMachines/read", request.parts["group"])
        asked = FILTER.fullmatch(request.query.get("$filter", ""))
        if asked is None:
            raise RefusedError(400, "InvalidParameter", "$filter: only a scale set's machines.")
        set_id, now = asked["id"], time.time()
        found = scale_set_of(self._azure.resources(), set_id)
        first = int(request.query.get("$skiptoken", "0"))
        if first >= faults.whole_pages * self._page and faults.happens("lists_fail"):
            raise RefusedError(500, "InternalServerError", "Something went wrong.")
        all_ = machines_of(found, now)
        shown = all_[first : first + self._page]
        location = found.inputs["location"]
        body: Json = {"value": [machine_body(set_id, location, one, now) for one in shown]}
        if first + self._page < len(all_):
            after = {**request.query, "$skiptoken": str(first + self._page)}
            body["nextLink"] = f"{request.base}{request.path}?{urlencode(after)}"
        return Answer(200, body)

    def get_machine(self, request: Request, faults: Faults) -> Answer:
        """Tells whether a VM of its own runs, which only its instance view says."""
        vm_id = request.parts["id"]
        self._allow(request, f"{COMPUTE}/virtualMachines/read", vm_id)
        found = self._azure.resources().get(vm_id)
        if found is None:
            raise not_found(vm_id)
        view = {"statuses": [{"code": power_state(found)}]}
        shown = {"instanceView": view} if request.query.get("$expand") == "instanceView" else {}
        return Answer(200, {"id": vm_id, "name": request.parts["name"], "properties": shown})

    def change_power(self, request: Request, faults: Faults) -> Answer:
        vm_id, verb = request.parts["id"], request.parts["verb"]
        self._allow(request, f"{COMPUTE}/virtualMachines/{verb}/action", vm_id)
        if verb == "deallocate" and faults.happens("deallocations_refused"):
            raise RefusedError(409, "Conflict", "Another operation is in progress.")
        set_id, _ = self._set_machine(vm_id)
        if set_id:
            self._machines.set_power(set_id, request.parts["name"], verb == "deallocate")
        elif vm_id not in self._azure.resources():
            raise not_found(vm_id)
        elif verb == "start" and faults.happens("starts_sold_out"):
            error = ArmError(faults.sold_out_code, SOLD_OUT)
            if error.code == SAID_AT_ONCE:
                raise refused(error)
            return self._begun(request, "eastus", error)
        else:
            (self._azure.deallocate if verb == "deallocate" else self._azure.start)(vm_id)
        return self._begun(request, "eastus")

    def evict(self, request: Request, faults: Faults) -> Answer:
        vm_id = request.parts["id"]
        self._allow(request, f"{COMPUTE}/virtualMachines/simulateEviction/action", vm_id)
        set_id, _ = self._set_machine(vm_id)
        if not set_id:
            raise not_found(vm_id)
        self._machines.evict(set_id, request.parts["name"], faults)
        return Answer(204)

    def run_command(self, request: Request, faults: Faults) -> Answer:
        """Refuses what is sent to a machine that does not run; scripts run by Pulumi's way only."""
        vm_id = request.parts["id"]
        self._allow(request, f"{COMPUTE}/virtualMachines/runCommand/action", vm_id)
        _, machine = self._set_machine(vm_id)
        known = self._azure.resources().get(vm_id)
        if machine is None and known is None:
            raise not_found(vm_id)
        runs = not machine.deallocated if machine else known and power_state(known) == RUNS
        raise RefusedError(501, "NotImplemented", vm_id) if runs else refused(NOT_RUNNING)

    def get_operation(self, request: Request, faults: Faults) -> Answer:
        name = request.parts["name"]
        operation = self._operations.found.get(name)
        if operation is None:
            raise RefusedError(404, "NotFound", f"No operation is called {name}.")
        action = f"{COMPUTE}/locations/operations/read"
        self._allow(request, action, operation.group_id)
        return Answer(200, operation.body(name, time.time()))

    def _set_machine(self, vm_id: str) -> tuple[str, SetMachine | None]:
        """Returns the scale set of a machine, with the machine; nothing for any other VM."""
        group, _, name = vm_id.partition("/virtualMachines/")
        for set_id, scale_set in all_of(self._azure.resources(), "VirtualMachineScaleSet").items():
            for machine in machines_of(scale_set, time.time()):
                if set_id.startswith(f"{group}/") and machine.name == name:
                    return set_id, machine
        return "", None

    def _begun(
        self,
        request: Request,
        location: str,
        error: ArmError | None = None,
        body: Json | None = None,
    ) -> Answer:
        until = time.time() + self._machines.operation_s
        name = self._operations.begin(Operation(request.parts["group"], until, error))
        subscription = request.path.split("/")[2]
        where = f"/subscriptions/{subscription}/providers/{COMPUTE}/locations/{location}"
        url = f"{request.base}{where}/operations/{name}?api-version=2024-07-01"
        return Answer(202, body, {"Azure-AsyncOperation": url, "Retry-After": "1"})

    def _allow(self, request: Request, action: str, scope: str) -> None:
        assignments = role_assignments(self._azure.resources())
        if not is_allowed(assignments, request.principal, action, scope, time.time()):
            raise forbidden(request.principal, action, scope)


def forbidden(principal: str, action: str, scope: str) -> RefusedError:
    return RefusedError(
        403,
        "AuthorizationFailed",
        f"The client '{principal}' does not have authorization to perform action '{action}' over "
        f"scope '{scope}'. If access was recently granted, please refresh your credentials.",
    )
