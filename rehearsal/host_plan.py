"""What this machine must have for the existing resources: a pure function of all of them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from rehearsal.azure.metadata.metadata_state import Identity, Instance
from rehearsal.azure.network.nsg_evaluation import Nsg, applied_nsgs
from rehearsal.azure.resources.resource_kinds import SUBSCRIPTION, Properties, Resources, all_of
from rehearsal.azure.resources.roles import RoleAssignment, role_assignments
from rehearsal.azure.resources.virtual_machines import VirtualMachine, virtual_machines
from rehearsal.azure.resources.virtual_network import (
    PrivateEndpoint,
    Subnet,
    private_endpoints,
    subnets,
)
from rehearsal.host_paths import PREFIX
from rehearsal.machines.disk import MachineSpec

DISK_GIB = 128
"""The size of a disk that is not declared: Ubuntu's image has 30, the one for HPC 64."""


@dataclass(frozen=True)
class Account:
    resource_id: str
    let_in: tuple[str, ...]
    """The CIDRs that pass its firewall."""
    containers: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """Everything that this machine must have."""

    bridges: dict[str, Subnet]
    """By their names on this machine."""
    nsgs: list[Nsg]
    machines: dict[str, MachineSpec]
    """By host name, like the next two."""
    public_addresses: dict[str, str]
    instances: dict[str, Instance]
    """The metadata service's entry of each machine."""
    accounts: dict[str, Account]
    """By name."""
    endpoints: list[PrivateEndpoint]
    assignments: list[RoleAssignment]
    deallocated: frozenset[str]
    """The host names of machines that exist without power."""

    def addresses(self, bridge: str) -> set[str]:
        """Returns a bridge's addresses: the subnet's gateway and its private endpoints."""
        subnet = self.bridges[bridge]
        endpoints = [endpoint for endpoint in self.endpoints if endpoint.subnet == subnet]
        gateway = f"{subnet.gateway}/{subnet.cidr.prefixlen}"
        return {gateway, *(f"{endpoint.address}/32" for endpoint in endpoints)}

    def public_accounts(self, machine: str) -> list[str]:
        """Returns the accounts whose public names a machine resolves.

        A machine outside an account's firewall does not resolve its name here: if its /etc/hosts
        names a private endpoint, that must be the only address. On Azure, /etc/hosts comes first.
        """
        address = IPv4Address(self.machines[machine].address)
        return [
            name
            for name, account in self.accounts.items()
            if any(address in IPv4Network(cidr) for cidr in account.let_in)
        ]


def plan(resources: Resources) -> Plan:
    vms = [vm for vm in virtual_machines(resources) if vm.exists]
    return Plan(
        {_bridge(subnet): subnet for subnet in subnets(resources)},
        applied_nsgs(resources),
        {vm.host_name: _machine(vm) for vm in vms},
        {vm.host_name: vm.public_address for vm in vms if vm.public_address},
        {vm.host_name: _instance(resources, vm) for vm in vms},
        _accounts(resources),
        private_endpoints(resources),
        role_assignments(resources),
        frozenset(vm.host_name for vm in vms if vm.deallocated),
    )


def _bridge(subnet: Subnet) -> str:
    """Returns a name that is independent of other subnets, in an interface's 15 letters."""
    return f"{PREFIX}{int(subnet.cidr.network_address)}"


def _machine(vm: VirtualMachine) -> MachineSpec:
    profile, storage = vm.profile["osProfile"], vm.profile.get("storageProfile", {})
    keys = profile["linuxConfiguration"]["ssh"]["publicKeys"]
    return MachineSpec(
        name=vm.host_name,
        resource_id=vm.resource_id,
        bridge=_bridge(vm.subnet),
        address=vm.address,
        prefix_length=vm.subnet.cidr.prefixlen,
        gateway=vm.subnet.gateway,
        user_data=base64.b64decode(profile["customData"]).decode(),
        admin_username=profile["adminUsername"],
        ssh_public_keys=[key["keyData"] for key in keys],
        # Here a custom image contains the Python environment.
        has_environment="id" in storage.get("imageReference", {}),
        disk_gib=storage.get("osDisk", {}).get("diskSizeGB", DISK_GIB),
    )


def _instance(resources: Resources, vm: VirtualMachine) -> Instance:
    identities = {key: resources[key] for key in vm.inputs["identity"]["userAssignedIdentities"]}
    return Instance(
        name=vm.host_name,
        address=vm.address,
        location=vm.inputs["location"],
        vm_size=vm.size,
        resource_group=vm.inputs["resourceGroupName"],
        resource_id=vm.resource_id,
        priority=vm.profile.get("priority", "Regular"),
        scale_set=vm.scale_set,
        tags=vm.inputs.get("tags") or {},
        identities={
            identity.added["clientId"]: Identity(identity.added["principalId"], resource_id=key)
            for key, identity in identities.items()
        },
        subscription_id=SUBSCRIPTION,
        subnet=str(vm.subnet.cidr),
        public_address=vm.public_address,
        user_data=vm.inputs.get("userData") or "",
    )


def _accounts(resources: Resources) -> dict[str, Account]:
    containers = [container.inputs for container in all_of(resources, "BlobContainer").values()]
    known_subnets = subnets(resources)
    return {
        account.inputs["accountName"]: Account(
            resource_id,
            tuple(_let_in(account.inputs, known_subnets)),
            tuple(
                container["containerName"]
                for container in containers
                if container["accountName"] == account.inputs["accountName"]
            ),
        )
        for resource_id, account in all_of(resources, "StorageAccount").items()
    }


def _let_in(account: Properties, known_subnets: list[Subnet]) -> Iterator[str]:
    """Yields the CIDRs that pass an account's firewall."""
    if account.get("publicNetworkAccess") == "Disabled":
        return
    rules = account.get("networkRuleSet") or {"defaultAction": "Allow"}
    if rules["defaultAction"] == "Allow":
        yield "0.0.0.0/0"
        return
    let_in = {rule["virtualNetworkResourceId"] for rule in rules.get("virtualNetworkRules") or []}
    for subnet in known_subnets:
        if subnet.resource_id in let_in and subnet.reaches_storage:
            yield str(subnet.cidr)
    for rule in rules.get("ipRules") or []:
        yield rule["iPAddressOrRange"]
