"""Bodies of Azure Resource Manager's answers: resources as its REST API writes them, and errors.

https://learn.microsoft.com/rest/api/compute/virtual-machine-scale-sets/get
https://learn.microsoft.com/rest/api/compute/virtual-machines/list
https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rehearsal.azure.azure_errors import ArmError
from rehearsal.azure.http_server import Answer
from rehearsal.azure.resources.resource_kinds import Resource
from rehearsal.azure.resources.scale_set_machines import SetMachine

Json = dict[str, Any]


class RefusedError(Exception):
    """Azure refuses a request."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.answer = Answer(status, error_body(code, message), headers or {})


def refused(error: ArmError) -> RefusedError:
    return RefusedError(error.status, error.code, error.message)


def error_body(code: str, message: str) -> Json:
    return {"error": {"code": code, "message": message}}


def etag(scale_set: Resource) -> str:
    """Returns a text that changes whenever the scale set does."""
    content = json.dumps([scale_set.inputs["sku"], scale_set.instance_view], sort_keys=True)
    return f'"{hashlib.sha256(content.encode()).hexdigest()[:16]}"'


def scale_set_body(resource_id: str, scale_set: Resource) -> Json:
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


def machine_body(set_id: str, location: str, machine: SetMachine, now: float) -> Json:
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


def _statuses(machine: SetMachine, state: str) -> list[Json]:
    if state == "Failed":
        code = f"ProvisioningState/failed/{machine.error}"
        return [{"code": code, "level": "Error", "message": f"{machine.name} was not made."}]
    power = "deallocated" if machine.deallocated else "running"
    return [
        {"code": f"ProvisioningState/{state.lower()}", "level": "Info"},
        {"code": f"PowerState/{power}", "level": "Info"},
    ]
