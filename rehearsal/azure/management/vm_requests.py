"""Requests for one VM: its power state, start and deallocation, eviction, run command.

https://learn.microsoft.com/rest/api/compute/virtual-machines
"""

from __future__ import annotations

import time

from rehearsal.azure.azure_errors import ArmError
from rehearsal.azure.management.resource_manager import COMPUTE, Request, ResourceManager
from rehearsal.azure.management.response_bodies import Answer, RefusedError, not_found, refused
from rehearsal.azure.management.scale_set_changes import SAID_AT_ONCE, SOLD_OUT
from rehearsal.azure.resources.resource_kinds import Resources, all_of
from rehearsal.azure.resources.scale_set_machines import SetMachine, machines_of
from rehearsal.azure.resources.virtual_machines import NOT_RUNNING, RUNS, power_state

LOCATION = "eastus"


def get_vm(manager: ResourceManager, request: Request) -> Answer:
    """Answers for a VM outside scale sets; only the instance view has its power state."""
    vm_id = request.parts["id"]
    manager.allow(request, f"{COMPUTE}/virtualMachines/read", vm_id)
    vm = manager.azure.resources().get(vm_id)
    if vm is None:
        raise not_found(vm_id)
    view = {"statuses": [{"code": power_state(vm)}]}
    properties = {"instanceView": view} if request.query.get("$expand") == "instanceView" else {}
    return Answer(200, {"id": vm_id, "name": request.parts["name"], "properties": properties})


def change_power(manager: ResourceManager, request: Request) -> Answer:
    azure, vm_id, verb = manager.azure, request.parts["id"], request.parts["verb"]
    manager.allow(request, f"{COMPUTE}/virtualMachines/{verb}/action", vm_id)
    if verb == "deallocate" and request.faults.happens("deallocations_refused"):
        raise RefusedError(409, "Conflict", "Another operation is in progress.")
    set_id, _ = _set_machine(azure.resources(), vm_id)
    if set_id:
        manager.machines.set_power(set_id, request.parts["name"], verb == "deallocate")
    elif vm_id not in azure.resources():
        raise not_found(vm_id)
    elif verb == "deallocate":
        azure.deallocate(vm_id)
    elif request.faults.happens("starts_sold_out"):
        error = ArmError(request.faults.sold_out_code, SOLD_OUT)
        if error.code == SAID_AT_ONCE:
            raise refused(error)
        return manager.accepted(request, LOCATION, error)
    else:
        azure.start(vm_id)
    return manager.accepted(request, LOCATION)


def evict(manager: ResourceManager, request: Request) -> Answer:
    vm_id = request.parts["id"]
    manager.allow(request, f"{COMPUTE}/virtualMachines/simulateEviction/action", vm_id)
    set_id, _ = _set_machine(manager.azure.resources(), vm_id)
    if not set_id:
        raise not_found(vm_id)
    manager.machines.evict(set_id, request.parts["name"], request.faults)
    return Answer(204)


def run_command(manager: ResourceManager, request: Request) -> Answer:
    """Refuses a script for a machine that is off. Only Pulumi's run commands are executed here."""
    vm_id, resources = request.parts["id"], manager.azure.resources()
    manager.allow(request, f"{COMPUTE}/virtualMachines/runCommand/action", vm_id)
    _, machine = _set_machine(resources, vm_id)
    vm = resources.get(vm_id)
    if machine is None and vm is None:
        raise not_found(vm_id)
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
