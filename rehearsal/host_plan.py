"""What must be on this machine for the resources that exist: a pure function of all of them."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from rehearsal.azure.metadata.metadata_state import Identity, Instance
from rehearsal.azure.network.nsg_evaluation import Nsg, applied_nsgs
from rehearsal.azure.network.private_endpoints import PrivateEndpoint, private_endpoints
from rehearsal.azure.resources.resource_kinds import SUBSCRIPTION, Properties, Resources, all_of
from rehearsal.azure.resources.roles import RoleAssignment, role_assignments
from rehearsal.azure.resources.virtual_machines import VirtualMachine, virtual_machines
from rehearsal.azure.resources.virtual_network import Subnet, subnets
from rehearsal.machines.disk import MachineSpec
from rehearsal.paths import PREFIX


@dataclass(frozen=True)
class Account:
    """A storage account."""

    resource_id: str
    let_in: tuple[str, ...]
    """The CIDRs that pass its firewall."""
    containers: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """Everything that must be there."""

    bridges: dict[str, Subnet]
    """By the names that they get here."""
    nsgs: list[Nsg]
    machines: dict[str, MachineSpec]
    """By host name, as the next two."""
    public_addresses: dict[str, str]
    instances: dict[str, Instance]
    """What the metadata service tells each machine."""
    accounts: dict[str, Account]
    """By name."""
    endpoints: list[PrivateEndpoint]
    assignments: list[RoleAssignment]
    deallocated: frozenset[str]
    """The machines that are there and have no power, by host name."""

    def addresses(self, bridge: str) -> set[str]:
        """Returns what a bridge answers to: the subnet's gateway and its private endpoints."""
        subnet = self.bridges[bridge]
        endpoints = [one for one in self.endpoints if one.subnet == subnet]
        gateway = f"{subnet.gateway}/{subnet.cidr.prefixlen}"
        return {gateway, *(f"{one.address}/32" for one in endpoints)}

    def public_accounts(self, machine: str) -> list[str]:
        """Returns the accounts that a machine finds by their public names.

        A machine that no firewall lets in is not told them: where its own /etc/hosts names a
        private endpoint, that has to be the only answer, as it is before Azure's name server.
        """
        address = IPv4Address(self.machines[machine].address)
        return [
            name
            for name, account in self.accounts.items()
            if any(address in IPv4Network(cidr) for cidr in account.let_in)
        ]


def plan(resources: Resources) -> Plan:
    """Returns what must be there for these resources."""
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
    """Returns a name that stays when other subnets come and go; interfaces have 15 letters."""
    return f"{PREFIX}{int(subnet.cidr.network_address)}"


def _machine(vm: VirtualMachine) -> MachineSpec:
    profile = vm.profile["osProfile"]
    (key,) = profile["linuxConfiguration"]["ssh"]["publicKeys"]
    return MachineSpec(
        name=vm.host_name,
        resource_id=vm.resource_id,
        bridge=_bridge(vm.subnet),
        address=vm.address,
        prefix_length=vm.subnet.cidr.prefixlen,
        gateway=vm.subnet.gateway,
        user_data=base64.b64decode(profile["customData"]).decode(),
        admin_username=profile["adminUsername"],
        ssh_public_key=key["keyData"],
        has_environment=_is_custom(vm.profile),
    )


def _is_custom(profile: Properties) -> bool:
    """Whether the image is somebody's own: here such an image carries the Python environment."""
    return "id" in profile.get("storageProfile", {}).get("imageReference", {})


def _instance(resources: Resources, vm: VirtualMachine) -> Instance:
    identities = {key: resources[key] for key in vm.inputs["identity"]["userAssignedIdentities"]}
    return Instance(
        name=vm.host_name,
        address=vm.address,
        location=vm.inputs["location"],
        vm_size=vm.size,
        resource_group=vm.inputs["resourceGroupName"],
        priority=vm.profile.get("priority", "Regular"),
        scale_set=vm.scale_set,
        tags=vm.inputs.get("tags") or {},
        identities={
            one.added["clientId"]: Identity(one.added["principalId"], resource_id=key)
            for key, one in identities.items()
        },
        subscription_id=SUBSCRIPTION,
        subnet=str(vm.subnet.cidr),
        public_address=vm.public_address,
    )


def _accounts(resources: Resources) -> dict[str, Account]:
    containers = [one.inputs for one in all_of(resources, "BlobContainer").values()]
    known_subnets = subnets(resources)
    return {
        account.inputs["accountName"]: Account(
            resource_id,
            tuple(_let_in(account.inputs, known_subnets)),
            tuple(
                one["containerName"]
                for one in containers
                if one["accountName"] == account.inputs["accountName"]
            ),
        )
        for resource_id, account in all_of(resources, "StorageAccount").items()
    }


def _let_in(account: Properties, known_subnets: list[Subnet]) -> Iterator[str]:
    """Yields who passes an account's firewall."""
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
