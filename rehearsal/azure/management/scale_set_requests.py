"""Requests for a scale set and its machines: GET, PATCH of the capacity, delete, list.

https://learn.microsoft.com/rest/api/compute/virtual-machine-scale-sets
"""

from __future__ import annotations

import re
import time
from urllib.parse import urlencode

from rehearsal.azure.management.resource_manager import COMPUTE, Request, ResourceManager
from rehearsal.azure.management.response_bodies import (
    Answer,
    Json,
    RefusedError,
    machine_body,
    scale_set_body,
)
from rehearsal.azure.management.scale_set_changes import scale_set_of
from rehearsal.azure.resources.roles import ASSIGN_IDENTITY, JOIN_SUBNET
from rehearsal.azure.resources.scale_set_machines import machines_of

FILTER = re.compile("'virtualMachineScaleSet/id' eq '(?P<id>[^']+)'")


def get_scale_set(manager: ResourceManager, request: Request) -> Answer:
    set_id = request.parts["id"]
    manager.allow(request, f"{COMPUTE}/virtualMachineScaleSets/read", set_id)
    scale_set = scale_set_of(manager.azure.resources(), set_id)
    return Answer(200, scale_set_body(set_id, scale_set))


def patch_scale_set(manager: ResourceManager, request: Request) -> Answer:
    """Changes the capacity: machines are made or deleted."""
    set_id, group = request.parts["id"], request.parts["group"]
    before = scale_set_of(manager.azure.resources(), set_id)
    profile = before.inputs["virtualMachineProfile"]
    manager.allow(request, f"{COMPUTE}/virtualMachineScaleSets/write", set_id)
    manager.allow(request, f"{COMPUTE}/virtualMachines/write", group)
    for identity in (before.inputs.get("identity") or {}).get("userAssignedIdentities") or ():
        manager.allow(request, ASSIGN_IDENTITY, identity)
    for interface in profile["networkProfile"]["networkInterfaceConfigurations"]:
        for configuration in interface["ipConfigurations"]:
            manager.allow(request, JOIN_SUBNET, configuration["subnet"]["id"])
    capacity = int(request.body["sku"]["capacity"])
    after, error = manager.machines.resize(set_id, capacity, request.if_match, request.faults)
    body = scale_set_body(set_id, after)
    return manager.accepted(request, after.inputs["location"], error, body)


def delete_machines(manager: ResourceManager, request: Request) -> Answer:
    set_id = request.parts["id"]
    manager.allow(request, f"{COMPUTE}/virtualMachineScaleSets/delete/action", set_id)
    scale_set = scale_set_of(manager.azure.resources(), set_id)
    manager.machines.delete(set_id, request.body["instanceIds"])
    return manager.accepted(request, scale_set.inputs["location"])


def list_machines(manager: ResourceManager, request: Request) -> Answer:
    manager.allow(request, f"{COMPUTE}/virtualMachines/read", request.parts["group"])
    set_filter = FILTER.fullmatch(request.query.get("$filter", ""))
    if set_filter is None:
        raise RefusedError(400, "InvalidParameter", "$filter: only a scale set's machines.")
    set_id, now = set_filter["id"], time.time()
    scale_set = scale_set_of(manager.azure.resources(), set_id)
    first = int(request.query.get("$skiptoken", "0"))
    if first >= request.faults.whole_pages * manager.page and request.faults.happens("lists_fail"):
        raise RefusedError(500, "InternalServerError", "Something went wrong.")
    machines = machines_of(scale_set, now)
    shown = machines[first : first + manager.page]
    location = scale_set.inputs["location"]
    body: Json = {"value": [machine_body(set_id, location, machine, now) for machine in shown]}
    if first + manager.page < len(machines):
        following = {**request.query, "$skiptoken": str(first + manager.page)}
        body["nextLink"] = f"{request.base}{request.path}?{urlencode(following)}"
    return Answer(200, body)
