"""The workers' scale set, as Azure's REST API shows it: its VMs, capacity and operations.

In Flexible orchestration a VM's instance id is its name.
https://learn.microsoft.com/rest/api/compute/virtual-machine-scale-sets
https://learn.microsoft.com/rest/api/compute/virtual-machines/list
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

from ..resource_manager import Json, Operation, ResourceManager, ResourceManagerError

VERSION = {"api-version": "2024-07-01"}
FORGOTTEN_S = 3600.0
"""An operation of unknown state is dropped after this time; then the list of VMs decides."""


@dataclass(frozen=True)
class VirtualMachine:
    name: str
    state: str
    """provisioningState: Creating, Updating, Succeeded, Failed or Deleting."""
    error: str = ""
    """Azure's reason for its failure, if any."""
    size: str = ""


@dataclass(frozen=True)
class Capacity:
    """The number of VMs that Azure counts for the scale set."""

    machines: int
    sku: Json
    etag: str


class ScaleSet:
    """Each method raises ResourceManagerError if Azure refuses or does not answer."""

    def __init__(self, azure: ResourceManager, resource_id: str) -> None:
        self._azure = azure
        self._id = resource_id
        self._compute = resource_id.partition("/virtualMachineScaleSets/")[0]

    def machines(self) -> list[VirtualMachine]:
        """Returns all VMs, including those being deleted; never a partial list."""
        belongs = f"'virtualMachineScaleSet/id' eq '{self._id}'"
        query = {**VERSION, "$filter": belongs, "$expand": "instanceView"}
        return [_machine(vm) for vm in self._azure.pages(f"{self._compute}/virtualMachines", query)]

    def capacity(self) -> Capacity:
        content = self._azure.get(self._id, VERSION)
        return Capacity(int(content["sku"]["capacity"]), content["sku"], content.get("etag", ""))

    def set_capacity(self, present: Capacity, machines: int) -> str:
        """Changes the capacity, unless it has changed meanwhile; returns the operation's URL."""
        sku = {**present.sku, "capacity": machines}
        return self._azure.write("PATCH", self._id, VERSION, {"sku": sku}, present.etag)

    def delete(self, names: Iterable[str]) -> str:
        """Deletes VMs and lowers the capacity by their number; returns the operation's URL."""
        body = {"instanceIds": sorted(names)}
        return self._azure.write("POST", f"{self._id}/delete", VERSION, body)


def _machine(vm: Json) -> VirtualMachine:
    properties = vm["properties"]
    statuses = (properties.get("instanceView") or {}).get("statuses") or []
    errors: list[Json] = [status for status in statuses if status.get("level") == "Error"]
    error = errors[0] if errors else {}
    code = str(error.get("code", "")).rpartition("/")[2]
    return VirtualMachine(
        str(vm["name"]),
        str(properties["provisioningState"]),
        ": ".join(filter(None, (code, error.get("message")))),
        str((properties.get("hardwareProfile") or {}).get("vmSize", "")),
    )


class Connection(Protocol):
    """A connection to Azure."""

    def operation(self, url: str) -> Operation: ...


@dataclass
class Operations:
    """The operations that have not ended.

    An operation that deletes no VMs makes the scale set grow.
    """

    _pending: dict[str, tuple[float, tuple[str, ...]]] = field(default_factory=dict)

    def add(self, url: str, deletes: tuple[str, ...] = ()) -> None:
        """Adds an operation; an empty URL means that Azure has finished already."""
        if url:
            self._pending[url] = monotonic(), deletes

    @property
    def growing(self) -> bool:
        return any(not deletes for _, deletes in self._pending.values())

    def take_ended(self, azure: Connection) -> list[tuple[Operation, tuple[str, ...]]]:
        """Returns the operations that have ended, each with the VMs that it deletes, once."""
        ended = []
        for url, (began, deletes) in list(self._pending.items()):
            try:
                operation = azure.operation(url)
            except ResourceManagerError:
                if monotonic() - began > FORGOTTEN_S:
                    del self._pending[url]
                continue
            if operation.ended:
                del self._pending[url]
                ended.append((operation, deletes))
        return ended
