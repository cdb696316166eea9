"""The workers' scale set, as Azure's REST API shows it: its VMs and its capacity.

In Flexible orchestration a VM's instance id is its name.
https://learn.microsoft.com/rest/api/compute/virtual-machine-scale-sets
https://learn.microsoft.com/rest/api/compute/virtual-machines/list
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from .management import Json, Management

VERSION = {"api-version": "2024-07-01"}


@dataclass(frozen=True)
class VirtualMachine:
    """A VM of the scale set."""

    name: str
    state: str
    """provisioningState: Creating, Updating, Succeeded, Failed or Deleting."""
    created: float
    """In seconds since the epoch."""
    error: str = ""
    """Why it has failed, as far as Azure says."""


@dataclass(frozen=True)
class Capacity:
    """How many VMs Azure thinks that the scale set has."""

    machines: int
    sku: Json
    etag: str


class ScaleSet:
    """Raises ManagementError wherever Azure does not answer as asked."""

    def __init__(self, management: Management, resource_id: str) -> None:
        self._management = management
        self._id = resource_id
        self._compute = resource_id.partition("/virtualMachineScaleSets/")[0]

    def machines(self) -> list[VirtualMachine]:
        """Returns all VMs, those that are being deleted too; never a part of them."""
        belongs = f"'virtualMachineScaleSet/id' eq '{self._id}'"
        query = {**VERSION, "$filter": belongs, "$expand": "instanceView"}
        return [
            _machine(one)
            for one in self._management.pages(f"{self._compute}/virtualMachines", query)
        ]

    def capacity(self) -> Capacity:
        found = self._management.get(self._id, VERSION)
        return Capacity(int(found["sku"]["capacity"]), found["sku"], found.get("etag", ""))

    def set_capacity(self, known: Capacity, machines: int) -> str:
        """Changes the capacity, unless somebody has changed it since; returns the operation."""
        sku = {**known.sku, "capacity": machines}
        return self._management.write("PATCH", self._id, VERSION, {"sku": sku}, known.etag)

    def delete(self, names: Iterable[str]) -> str:
        """Deletes VMs, and lowers the capacity by as many; returns the operation."""
        body = {"instanceIds": sorted(names)}
        return self._management.write("POST", f"{self._id}/delete", VERSION, body)


def _machine(found: Json) -> VirtualMachine:
    properties = found["properties"]
    statuses = (properties.get("instanceView") or {}).get("statuses") or []
    errors: list[Json] = [one for one in statuses if one.get("level") == "Error"]
    error = errors[0] if errors else {}
    code = str(error.get("code", "")).rpartition("/")[2]
    return VirtualMachine(
        str(found["name"]),
        str(properties["provisioningState"]),
        datetime.fromisoformat(properties["timeCreated"]).timestamp(),
        ": ".join(filter(None, (code, error.get("message")))),
    )
