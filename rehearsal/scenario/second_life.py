"""Acts in which another stack continues with kept results, in somebody else's network."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from head.saved_database import NEWEST
from infra.stack.results_account import CONTAINER
from rehearsal.addresses import BLOB_ADDRESS, EXISTING_SUBNETS, EXISTING_VNET
from rehearsal.azure.blob.blob_proxy import HOST_SUFFIX
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import KINDS, Properties, Resources
from rehearsal.azure.resources.virtual_network import private_endpoints
from rehearsal.backend import Backend, storage_accounts
from rehearsal.machines.nspawn_machine import Machine, all_machines
from rehearsal.scenario import python_environments, stack_changes
from rehearsal.scenario.context import Context
from rehearsal.scenario.head_commands import queue_log
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until

GROUP = {"resourceGroupName": "theirs"}
VNET = {**GROUP, "virtualNetworkName": "their-vnet"}
SAVED_S = 90.0
"""The head saves every 30 s."""
SILENCE_S = 3
"""No answer for this long means that a firewall has dropped the request."""
TIMED_OUT = 28
"""curl's exit code for a timeout."""
RESUMED = re.compile(r"Resumed from \S+ at ([\d,]+) environment steps")


@dataclass(frozen=True)
class ExistingNetwork:
    """Somebody else's virtual network: the resource ids of its subnets."""

    head_subnet: str
    worker_subnet: str


def make_existing_network(azure: Azure) -> ExistingNetwork:
    """Makes the network: two subnets with a NAT gateway, no NSG and no service endpoint."""
    make(azure, "resources", "ResourceGroup", GROUP)
    address = {"publicIpAddressName": "their-nat-ip", "publicIPAllocationMethod": "Static"}
    address_id = make(azure, "network", "PublicIPAddress", {**GROUP, **address})
    nat = {"natGatewayName": "their-nat", "publicIpAddresses": [{"id": address_id}]}
    nat_id = make(azure, "network", "NatGateway", {**GROUP, **nat})
    space = {"addressSpace": {"addressPrefixes": [EXISTING_VNET]}}
    make(azure, "network", "VirtualNetwork", {**VNET, **space})
    # Azure returns a subnet's addresses as they were sent: one prefix, or a list.
    head_cidr, worker_cidr = EXISTING_SUBNETS
    shared = {**VNET, "natGateway": {"id": nat_id}}
    head = {**shared, "subnetName": "one", "addressPrefix": head_cidr}
    worker = {**shared, "subnetName": "other", "addressPrefixes": [worker_cidr]}
    return ExistingNetwork(
        head_subnet=make(azure, "network", "Subnet", head),
        worker_subnet=make(azure, "network", "Subnet", worker),
    )


def make(azure: Azure, module: str, kind: str, inputs: Properties) -> str:
    """Creates a resource that belongs to somebody else; returns its id."""
    resource_id = KINDS[kind].resource_id(inputs)
    azure.create(f"azure-native:{module}:{kind}", resource_id, inputs)
    return resource_id


def second_life(context: Context, existing: ExistingNetwork) -> str:
    """Runs `up` with the kept account, in somebody else's subnets, with one worker."""
    saved = _database(context)
    experiment_id = context.experiment_id
    seen = stack_changes.up(
        context,
        minWorkers="1",
        maxWorkers="1",
        resultsAccountId=context.outputs["resultsAccountId"],
        headSubnetId=existing.head_subnet,
        workerSubnetId=existing.worker_subnet,
    )
    (endpoint,) = private_endpoints(Backend().resources())
    for machine in all_machines():
        if IPv4Address(machine.spec.address) not in IPv4Network(EXISTING_VNET):
            raise UnexpectedError(f"{machine.name} has the address {machine.spec.address}")
        check_way(machine, f"{context.account}{HOST_SUFFIX}", endpoint.address)
    context.check_same_run()
    if context.newest_run()["info"]["experiment_id"] != experiment_id:
        raise UnexpectedError("the run is in another MLflow experiment")
    until(lambda: _database(context) != saved, SAVED_S, f"a change of {NEWEST} in the account")
    resumed = _resumed_at(context.head)
    environment = python_environments.taken(all_machines())
    return f"{seen}; the same MLflow run, resumed at {resumed} environment steps; {environment}"


def destroy(context: Context, before: Resources) -> str:
    """Runs `destroy`; compares the resources that are left with those from before."""
    after = stack_changes.left_by_destroy(context)
    different = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    if different:
        raise UnexpectedError(f"different: {', '.join(sorted(different))}")
    return f"the {len(after)} resources from before, all as they were"


def _database(context: Context) -> bytes:
    """Returns MLflow's database as it is saved in the account."""
    return storage_accounts().read(context.account, CONTAINER, NEWEST)


def check_way(machine: Machine, host: str, endpoint: str) -> None:
    """Checks that the machine reaches the account at its private endpoint only."""
    lines = machine.run("getent", "ahostsv4", host).stdout.splitlines()
    addresses = {line.split()[0] for line in lines}
    if addresses != {endpoint}:
        raise UnexpectedError(f"{machine.name} finds the account at {sorted(addresses)}")
    exit_codes = {address: _curl(machine, host, address) for address in (endpoint, BLOB_ADDRESS)}
    if exit_codes != {endpoint: 0, BLOB_ADDRESS: TIMED_OUT}:
        raise UnexpectedError(f"{machine.name}: curl's exit codes by address: {exit_codes}")


def _curl(machine: Machine, host: str, address: str) -> int:
    """Asks for the account at an address; returns curl's exit code, 0 for any answer."""
    where = ("--resolve", f"{host}:443:{address}", f"https://{host}/")
    quiet = ("--silent", "--output", "/dev/null", "--max-time", str(SILENCE_S))
    return machine.run("curl", *quiet, *where, check=False).returncode


def _resumed_at(head: Machine) -> str:
    """Returns the environment steps of the checkpoint that the training continued from."""
    resumed = RESUMED.search(queue_log(head))
    if resumed is None:
        raise UnexpectedError("the training started from the beginning")
    return resumed[1]
