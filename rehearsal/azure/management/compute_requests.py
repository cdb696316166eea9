"""Requests for a scale set, its machines, and VMs outside scale sets, and what is answered.

https://learn.microsoft.com/rest/api/compute/virtual-machine-scale-sets
https://learn.microsoft.com/rest/api/compute/virtual-machines
https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from urllib.parse import urlencode

from rehearsal.azure.azure_errors import ArmError, RefusedError, not_found, refused
from rehearsal.azure.http_server import Answer
from rehearsal.azure.management.request_context import COMPUTE, Request, RequestContext
from rehearsal.azure.management.scale_set_changes import SAID_AT_ONCE, SOLD_OUT, etag, scale_set_of
from rehearsal.azure.resources.refusals import subnets_of
from rehearsal.azure.resources.resource_kinds import Properties, Resource, Resources, all_of
from rehearsal.azure.resources.roles import ASSIGN_IDENTITY, JOIN_SUBNET
from rehearsal.azure.resources.scale_set_machines import SetMachine, machines_of
from rehearsal.azure.resources.virtual_machines import NOT_RUNNING, RUNS, power_state

LOCATION = "eastus"
FILTER = re.compile("'virtualMachineScaleSet/id' eq '(?P<id>[^']+)'")


def get_scale_set(context: RequestContext, request: Request) -> Answer:
    set_id = request.parts["id"]
    context.allow(request, f"{COMPUTE}/virtualMachineScaleSets/read", set_id)
    scale_set = scale_set_of(context.azure.resources(), set_id)
    return Answer(200, scale_set_body(set_id, scale_set))


def patch_scale_set(context: RequestContext, request: Request) -> Answer:
    """Changes the capacity: machines are made or deleted."""
    set_id, group = request.parts["id"], request.parts["group"]
    before = scale_set_of(context.azure.resources(), set_id)
    context.allow(request, f"{COMPUTE}/virtualMachineScaleSets/write", set_id)
    context.allow(request, f"{COMPUTE}/virtualMachines/write", group)
    for identity in (before.inputs.get("identity") or {}).get("userAssignedIdentities") or ():
        context.allow(request, ASSIGN_IDENTITY, identity)
    for subnet in subnets_of(before.inputs):
        context.allow(request, JOIN_SUBNET, subnet)
    capacity = int(request.body["sku"]["capacity"])
    after, error = context.machines.resize(set_id, capacity, request.if_match, request.faults)
    body = scale_set_body(set_id, after)
    return context.accepted(request, after.inputs["location"], error, body)


def delete_machines(context: RequestContext, request: Request) -> Answer:
    set_id = request.parts["id"]
    context.allow(request, f"{COMPUTE}/virtualMachineScaleSets/delete/action", set_id)
    scale_set = scale_set_of(context.azure.resources(), set_id)
    context.machines.delete(set_id, request.body["instanceIds"])
    return context.accepted(request, scale_set.inputs["location"])


def list_machines(context: RequestContext, request: Request) -> Answer:
    context.allow(request, f"{COMPUTE}/virtualMachines/read", request.parts["group"])
    set_filter = FILTER.fullmatch(request.query.get("$filter", ""))
    if set_filter is None:
        raise RefusedError(400, "InvalidParameter", "$filter: only a scale set's machines.")
    set_id, now = set_filter["id"], time.time()
    scale_set = scale_set_of(context.azure.resources(), set_id)
    first = int(request.query.get("$skiptoken", "0"))
    if first >= request.faults.whole_pages * context.page and request.faults.happens("lists_fail"):
        raise RefusedError(500, "InternalServerError", "Something went wrong.")
    machines = machines_of(scale_set, now)
    shown = machines[first : first + context.page]
    location = scale_set.inputs["location"]
    values = [machine_body(set_id, location, machine, now) for machine in shown]
    body: Properties = {"value": values}
    if first + context.page < len(machines):
        following = {**request.query, "$skiptoken": str(first + context.page)}
        body["nextLink"] = f"{request.base}{request.path}?{urlencode(following)}"
    return Answer(200, body)


def get_vm(context: RequestContext, request: Request) -> Answer:
    """Answers for a VM outside scale sets; only the instance view has its power state."""
    vm_id = request.parts["id"]
    context.allow(request, f"{COMPUTE}/virtualMachines/read", vm_id)
    vm = context.azure.resources().get(vm_id)
    if vm is None:
        raise refused(not_found(vm_id))
    view = {"statuses": [{"code": power_state(vm)}]}
    properties = {"instanceView": view} if request.query.get("$expand") == "instanceView" else {}
    return Answer(200, {"id": vm_id, "name": request.parts["name"], "properties": properties})


def change_power(context: RequestContext, request: Request) -> Answer:
    azure, vm_id, verb = context.azure, request.parts["id"], request.parts["verb"]
    context.allow(request, f"{COMPUTE}/virtualMachines/{verb}/action", vm_id)
    if verb == "deallocate" and request.faults.happens("deallocations_refused"):
        raise RefusedError(409, "Conflict", "Another operation is in progress.")
    set_id, _ = _set_machine(azure.resources(), vm_id)
    if set_id:
        context.machines.set_power(set_id, request.parts["name"], verb == "deallocate")
    elif vm_id not in azure.resources():
        raise refused(not_found(vm_id))
    elif verb == "deallocate":
        azure.deallocate(vm_id)
    elif request.faults.happens("starts_sold_out"):
        error = ArmError(request.faults.sold_out_code, SOLD_OUT)
        if error.code == SAID_AT_ONCE:
            raise refused(error)
        return context.accepted(request, LOCATION, error)
    else:
        azure.start(vm_id)
    return context.accepted(request, LOCATION)


def evict(context: RequestContext, request: Request) -> Answer:
    vm_id = request.parts["id"]
    context.allow(request, f"{COMPUTE}/virtualMachines/simulateEviction/action", vm_id)
    set_id, _ = _set_machine(context.azure.resources(), vm_id)
    if not set_id:
        raise refused(not_found(vm_id))
    context.machines.evict(set_id, request.parts["name"], request.faults)
    return Answer(204)


def run_command(context: RequestContext, request: Request) -> Answer:
    """Refuses a script for a machine that is off. Only Pulumi's run commands are executed here."""
    vm_id, resources = request.parts["id"], context.azure.resources()
    context.allow(request, f"{COMPUTE}/virtualMachines/runCommand/action", vm_id)
    _, machine = _set_machine(resources, vm_id)
    vm = resources.get(vm_id)
    if machine is None and vm is None:
        raise refused(not_found(vm_id))
    runs = not machine.deallocated if machine else vm and power_state(vm) == RUNS
    raise RefusedError(501, "NotImplemented", vm_id) if runs else refused(NOT_RUNNING)


def _set_machine(resources: Resources, vm_id: str) -> tuple[str, SetMachine | None]:
    """Returns the scale set of a machine, with the machine; nothing for any other VM."""
    group, _, name = vm_id.partition("/virtualMachines/")
    for set_id, scale_set in all_of(resources, "VirtualMachineScaleSet").items():
        for machine in machines_of(scale_set, time.time()):
            if set_id.startswith(f"{group}/") and machine.name == name:
                return set_id, machine
    return "", None


def scale_set_body(resource_id: str, scale_set: Resource) -> Properties:
    """Returns a scale set without its profile, which no client here uses."""
    inputs = scale_set.inputs
    return {
        "name": resource_id.rpartition("/")[2],
        "id": resource_id,
        "type": "Microsoft.Compute/virtualMachineScaleSets",
        "location": inputs["location"],
        "sku": inputs["sku"],
        "etag": etag(scale_set),
        "properties": {"provisioningState": "Succeeded", "orchestrationMode": "Flexible"},
    }


def machine_body(set_id: str, location: str, machine: SetMachine, now: float) -> Properties:
    """Returns a VM of a scale set; its name is its instance id."""
    compute = set_id.partition("/virtualMachineScaleSets/")[0]
    state = machine.state(now)
    return {
        "name": machine.name,
        "id": f"{compute}/virtualMachines/{machine.name}",
        "type": "Microsoft.Compute/virtualMachines",
        "location": location,
        "properties": {
            "provisioningState": state,
            "timeCreated": datetime.fromtimestamp(machine.created, UTC).isoformat(),
            "virtualMachineScaleSet": {"id": set_id},
            "instanceView": {"statuses": _statuses(machine, state)},
        },
    }


def _statuses(machine: SetMachine, state: str) -> list[Properties]:
    if state == "Failed":
        code = f"ProvisioningState/failed/{machine.error}"
        return [{"code": code, "level": "Error", "message": f"{machine.name} was not made."}]
    power = "deallocated" if machine.deallocated else "running"
    return [
        {"code": f"ProvisioningState/{state.lower()}", "level": "Info"},
        {"code": f"PowerState/{power}", "level": "Info"},
    ]
