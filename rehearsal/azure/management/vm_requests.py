"""Requests for a single VM, of a scale set or not, and their answers.

https://learn.microsoft.com/rest/api/compute/virtual-machines
https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
"""

from __future__ import annotations

import time

from rehearsal.azure.azure_errors import ArmError, RefusedError, not_found, refused
from rehearsal.azure.http_server import Answer
from rehearsal.azure.management.request_context import COMPUTE, Request, RequestContext
from rehearsal.azure.management.scale_set_changes import SAID_AT_ONCE, SOLD_OUT
from rehearsal.azure.resources.resource_kinds import Resources, all_of
from rehearsal.azure.resources.scale_set_machines import SetMachine, machines_of
from rehearsal.azure.resources.virtual_machines import NOT_RUNNING, RUNS, power_state

LOCATION = "eastus"


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
