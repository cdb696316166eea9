"""A stack declared on the Azure stand-in: every resource as Azure would receive it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rehearsal.azure.management.management_faults import Faults
from rehearsal.azure.management.scale_set_changes import SetMachines
from rehearsal.azure.network.nsg_evaluation import applied_nsgs, open_ports
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import SUBSCRIPTION, Properties, Resource, all_of
from rehearsal.azure.resources.virtual_machines import virtual_machines
from rehearsal.drivers.in_process import PROVIDER, InProcess

SSH_KEY = (
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIwGzXhPLKgDKrCIkuCt8jYwPCgPQLBKxNJCMqdIHIYB admin@laptop"
)
REQUIRED = {"adminCidr": "203.0.113.7/32", "sshPublicKey": SSH_KEY}
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/theirs/providers"
VNET = f"{GROUP}/Microsoft.Network/virtualNetworks/vnet"
EXISTING_SUBNETS = {"headSubnetId": f"{VNET}/subnets/one", "workerSubnetId": f"{VNET}/subnets/two"}
EXISTING_CIDRS = {"one": "172.16.1.0/24", "two": "172.16.2.0/24"}
EXISTING_ACCOUNT = {"resultsAccountId": f"{GROUP}/Microsoft.Storage/storageAccounts/oldresults"}
OTHER_SUBSCRIPTION = SUBSCRIPTION.replace("1", "2")
DISTANT_ACCOUNT = {
    key: account.replace(SUBSCRIPTION, OTHER_SUBSCRIPTION)
    for key, account in EXISTING_ACCOUNT.items()
}
"""The existing account, in another subscription."""
WORKSPACE_ID = f"{GROUP}/Microsoft.OperationalInsights/workspaces/company"
SOMEBODY_ELSES: dict[str, tuple[str, Properties]] = {
    VNET: ("VirtualNetwork", {"addressSpace": {"addressPrefixes": ["172.16.0.0/16"]}}),
    # Azure returns a subnet's addresses as they were declared: one prefix, or a list.
    f"{VNET}/subnets/one": ("Subnet", {"addressPrefix": EXISTING_CIDRS["one"]}),
    f"{VNET}/subnets/two": ("Subnet", {"addressPrefixes": [EXISTING_CIDRS["two"]]}),
    WORKSPACE_ID: ("Workspace", {"location": "westeurope"}),
}
"""Resources already in Azure: type and inputs by resource ID."""


@dataclass(frozen=True)
class DeclaredResource:
    """One resource that the program declares."""

    type: str
    """The last part of its type, for example "VirtualMachine"."""
    token: str
    name: str
    """Its name in the program."""
    id: str
    inputs: Properties
    added: Properties
    """The properties that Azure added."""
    options: Any
    """The engine's RegisterResourceRequest: retainOnDelete, replaceOnChanges, dependencies ..."""

    @property
    def waits_for(self) -> set[str]:
        """The names of the resources on which this one depends."""
        return {urn.rpartition("::")[2] for urn in self.options.dependencies}

    @property
    def subscription(self) -> str:
        return self.id.split("/")[2]


@dataclass(frozen=True)
class Declared:
    """A whole stack."""

    resources: list[DeclaredResource]
    outputs: dict[str, Any]
    providers: list[str]
    """The names of the program's own providers."""
    azure: dict[str, Resource]
    """All existing resources, including all workers and those of others."""

    def all(self, kind: str) -> list[DeclaredResource]:
        return [resource for resource in self.resources if resource.type == kind]

    def resource(self, kind: str, name: str = "") -> DeclaredResource:
        """Returns the only resource of a type whose name contains `name`."""
        (found,) = [resource for resource in self.all(kind) if name in resource.name]
        return found

    def one(self, kind: str, name: str = "") -> Properties:
        """Returns the inputs of the only resource of a type whose name contains `name`."""
        return self.resource(kind, name).inputs

    def custom_data(self, role: str) -> str:
        if role == "head":
            profile = self.one("VirtualMachine")["osProfile"]
        else:
            profile = self.one("VirtualMachineScaleSet")["virtualMachineProfile"]["osProfile"]
        return base64.b64decode(profile["customData"]).decode()

    def open_ports(self, source: str, machine: str, protocol: str = "tcp") -> set[int]:
        """Returns the ports of a machine that packets from an address reach."""
        (target,) = [vm for vm in virtual_machines(self.azure) if vm.host_name == machine]
        return open_ports(applied_nsgs(self.azure), source, target.address, protocol)


@cache
def declare_stack(stack_name: str = "dev", **config: str) -> Declared:
    """Declares a stack with this configuration and the required one; caches the result."""
    with TemporaryDirectory() as folder:
        azure = Azure(Path(folder, "resources.json"))
        for resource_id, (kind, inputs) in SOMEBODY_ELSES.items():
            azure.create(f"azure-native:network:{kind}", resource_id, inputs)
        driver = InProcess(azure, stack_name)
        result = driver.up({**REQUIRED, **config})
        known = azure.resources()
        assert not result.error, result.error
        with_workers = _grown(azure, int(config.get("maxWorkers", "4")))
    resources = [
        DeclaredResource(
            known[state.resource_id].kind,
            state.token,
            key.rpartition("::")[2],
            state.resource_id,
            known[state.resource_id].inputs,
            known[state.resource_id].added,
            driver.requests[key],
        )
        for key, state in driver.states.items()
    ]
    providers = [key.rpartition("::")[2] for key in driver.requests if key.startswith(PROVIDER)]
    return Declared(resources, result.outputs, providers, with_workers)


def _grown(azure: Azure, workers: int) -> dict[str, Resource]:
    """Returns all resources after the head has requested its workers."""
    for set_id in all_of(azure.resources(), "VirtualMachineScaleSet"):
        SetMachines(azure, operation_s=0).resize(set_id, workers, "", Faults())
    return azure.resources()
