"""A resource group with a scale set, an identity that may change it, and the endpoint over HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rehearsal.azure.management.management_faults import FaultsFile
from rehearsal.azure.management.management_service import server
from rehearsal.azure.management.request_routing import Management
from rehearsal.azure.management.scale_set_changes import SetMachines
from rehearsal.azure.metadata.managed_identity import access_token
from rehearsal.azure.metadata.metadata_state import Identity
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import KINDS, SUBSCRIPTION, Properties
from rehearsal.azure.resources.roles import IDENTITY_OPERATOR, VM_CONTRIBUTOR
from rehearsal.azure.resources.scale_set_machines import SetMachine, machines_of

GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g"
IN_GROUP: Properties = {"resourceGroupName": "g", "location": "eastus"}
SUBNET = f"{GROUP}/providers/Microsoft.Network/virtualNetworks/v/subnets/workers"
IDENTITY = f"{GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/workers"
SCALE_SET = f"{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/workers"
HEAD = f"{GROUP}/providers/Microsoft.Compute/virtualMachines/head"
INTERFACE = f"{GROUP}/providers/Microsoft.Network/networkInterfaces/head"
HEADS = "head's principal"
ROLES = {"vm": (VM_CONTRIBUTOR, GROUP), "identity": (IDENTITY_OPERATOR, IDENTITY)}
"""The roles of the head's identity and their scopes, by the resource they concern."""


@dataclass(frozen=True)
class Cloud:
    """Azure with one scale set."""

    azure: Azure
    faults: FaultsFile
    management: Management
    url: str

    def token(self, principal: str = HEADS, audience: str = "https://management.azure.com") -> str:
        return access_token(audience, "client", Identity(principal), int(time.time()))

    def machines(self) -> dict[str, SetMachine]:
        """Returns the existing machines by name, including those being deleted."""
        scale_set = self.azure.resources()[SCALE_SET]
        return {machine.name: machine for machine in machines_of(scale_set, time.time())}

    @property
    def capacity(self) -> int:
        return int(self.azure.resources()[SCALE_SET].inputs["sku"]["capacity"])

    def evict(self, name: str) -> None:
        with self.faults.changed() as faults:
            SetMachines(self.azure).evict(SCALE_SET, name, faults)

    def count(self, request: str) -> int:
        """Returns the number of requests of a kind, such as "PATCH" or "GET .../workers"."""
        return sum(asked.startswith(request) for asked in self.management.asked)


@contextmanager
def cloud(
    folder: Path, capacity: int = 0, roles: tuple[str, ...] = tuple(ROLES)
) -> Iterator[Cloud]:
    """Yields a cloud with these of ROLES in effect."""
    azure = Azure(folder / "azure.json")
    declare(azure, capacity, roles)
    faults = FaultsFile(folder / "faults.json")
    management = Management(azure, faults, page=2)
    with server(management, "127.0.0.1", 0) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield Cloud(azure, faults, management, f"http://127.0.0.1:{serving.server_address[1]}")
        serving.shutdown()
        thread.join()


def declare(azure: Azure, capacity: int, roles: tuple[str, ...]) -> None:
    """Creates the resources that Pulumi would."""
    make(azure, "Subnet", SUBNET, {"addressPrefix": "10.42.1.0/24"})
    make(azure, "UserAssignedIdentity", IDENTITY, {"resourceName": "workers", **IN_GROUP})
    address = {"ipConfigurations": [{"subnet": {"id": SUBNET}}]}
    make(azure, "NetworkInterface", INTERFACE, {"networkInterfaceName": "head", **address})
    head = {
        "vmName": "head",
        "osProfile": {"computerName": "head"},
        "hardwareProfile": {"vmSize": "Standard_D4as_v5"},
        "networkProfile": {"networkInterfaces": [{"id": INTERFACE}]},
    }
    make(azure, "VirtualMachine", HEAD, {**head, **IN_GROUP})
    for name in roles:
        role, scope = ROLES[name]
        assignment = {
            "roleAssignmentName": name,
            "principalId": HEADS,
            "principalType": "ServicePrincipal",
            "roleDefinitionId": f"/roleDefinitions/{role}",
            "scope": scope,
        }
        make(azure, "RoleAssignment", KINDS["RoleAssignment"].resource_id(assignment), assignment)
    make(azure, "VirtualMachineScaleSet", SCALE_SET, scale_set(capacity))


def make(azure: Azure, kind: str, resource_id: str, inputs: Properties) -> None:
    azure.create(f"azure-native:any:{kind}", resource_id, inputs)


def scale_set(capacity: int) -> Properties:
    """Returns a scale set's inputs, as far as they matter here."""
    address = {"subnet": {"id": SUBNET}}
    interfaces = {"networkInterfaceConfigurations": [{"ipConfigurations": [address]}]}
    return {
        **IN_GROUP,
        "vmScaleSetName": "workers",
        "sku": {"name": "Standard_D2as_v5", "tier": "Standard", "capacity": capacity},
        "identity": {"type": "UserAssigned", "userAssignedIdentities": [IDENTITY]},
        "virtualMachineProfile": {
            "priority": "Spot",
            "osProfile": {"computerNamePrefix": "worker"},
            "networkProfile": interfaces,
        },
    }
