"""Requests for a scale set and its machines, and their answers.

https://learn.microsoft.com/rest/api/compute/virtual-machine-scale-sets
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import urlencode

from rehearsal.azure.azure_errors import RefusedError
from rehearsal.azure.http_server import Answer
from rehearsal.azure.management.request_context import COMPUTE, Request, RequestContext
from rehearsal.azure.management.scale_set_changes import etag, scale_set_of
from rehearsal.azure.resources.refusals import subnets_of
from rehearsal.azure.resources.resource_kinds import Properties, Resource
from rehearsal.azure.resources.resource_skus import sizes_of
from rehearsal.azure.resources.roles import ASSIGN_IDENTITY, JOIN_SUBNET
from rehearsal.azure.resources.scale_set_machines import SetMachine, machines_of

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
    storage = before.inputs["virtualMachineProfile"].get("storageProfile") or {}
    if image := storage.get("imageReference", {}).get("id"):
        context.allow(request, f"{COMPUTE}/images/read", image)
    capacity = int(request.body["sku"]["capacity"])
    after, error = context.machines.resize(set_id, capacity, request.if_match, request.faults)
    body = scale_set_body(set_id, after)
    return context.accepted(request, after.inputs["location"], error, body)


def delete_machines(context: RequestContext, request: Request) -> Answer:
    set_id = request.parts["id"]
    context.allow(request, f"{COMPUTE}/virtualMachineScaleSets/delete/action", set_id)
    scale_set = scale_set_of(context.azure.resources(), set_id)
    context.machines.delete(set_id, request.body["instanceIds"], request.faults)
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
    size = sizes_of(scale_set.inputs)[0]
    values = [
        machine_body(set_id, location, replace(machine, size=machine.size or size), now)
        for machine in shown
    ]
    body: Properties = {"value": values}
    if first + context.page < len(machines):
        following = {**request.query, "$skiptoken": str(first + context.page)}
        body["nextLink"] = f"{request.base}{request.path}?{urlencode(following)}"
    return Answer(200, body)


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
            "hardwareProfile": {"vmSize": machine.size},
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
