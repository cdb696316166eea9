"""Acts in which another stack continues with kept results, in a network of somebody else."""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network

from infra.stack.retention import CONTAINER
from rehearsal.addresses import BLOB_ADDRESS, EXISTING_VNET
from rehearsal.azure.blob.blob_proxy import HOST_SUFFIX
from rehearsal.azure.network.private_endpoints import private_endpoints
from rehearsal.azure.resources.resource_kinds import Resources
from rehearsal.backend import Backend, storage_accounts
from rehearsal.machines.machine import Machine, all_machines
from rehearsal.scenario import environments, stack_changes
from rehearsal.scenario.context import Context
from rehearsal.scenario.existing_network import ExistingNetwork
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until

DATABASE = "mlflow.db"
SAVED_S = 90.0
"""The head saves every 30 s."""
SILENCE_S = 3
"""After this a firewall has dropped what was sent."""
TIMED_OUT = 28
"""curl's exit code."""
RESUMED = re.compile(r"Resumed from \S+ at ([\d,]+) environment steps")


def second_life(context: Context, existing: ExistingNetwork) -> str:
    """Runs `up` with the kept account, in somebody's subnets, with one worker."""
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
        _check_place(machine)
        _check_way(machine, f"{context.account}{HOST_SUFFIX}", endpoint.address)
    context.check_same_run()
    if context.newest_run()["info"]["experiment_id"] != experiment_id:
        raise UnexpectedError("the run is in another MLflow experiment")
    until(lambda: _database(context) != saved, SAVED_S, f"a change of {DATABASE} in the account")
    resumed = _resumed_at(context.head)
    environment = environments.taken(all_machines())
    return f"{seen}; the same MLflow run, resumed at {resumed} environment steps; {environment}"


def destroy(context: Context, before: Resources) -> str:
    """Runs `destroy`; compares what is left with what was there before."""
    result = context.driver.destroy()
    if result.error:
        raise UnexpectedError(result.error)
    after = Backend().resources()
    different = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    machines = [machine.name for machine in all_machines()]
    if machines or different:
        raise UnexpectedError(f"different: {', '.join([*machines, *sorted(different)])}")
    return f"the {len(after)} resources from before, all as they were"


def _database(context: Context) -> bytes:
    """Returns what the account has of MLflow's database."""
    return storage_accounts().read(context.account, CONTAINER, DATABASE)


def _check_place(machine: Machine) -> None:
    """The machine is in the network of somebody else."""
    if IPv4Address(machine.spec.address) not in IPv4Network(EXISTING_VNET):
        raise UnexpectedError(f"{machine.name} has the address {machine.spec.address}")


def _check_way(machine: Machine, host: str, endpoint: str) -> None:
    """The machine finds the account at its endpoint only, and the public address is shut."""
    found = machine.run("getent", "ahostsv4", host).stdout.split("\n")
    addresses = {line.split()[0] for line in found if line}
    if addresses != {endpoint}:
        raise UnexpectedError(f"{machine.name} finds the account at {sorted(addresses)}")
    answered = {address: _curl(machine, host, address) for address in (endpoint, BLOB_ADDRESS)}
    if answered != {endpoint: 0, BLOB_ADDRESS: TIMED_OUT}:
        raise UnexpectedError(f"{machine.name}: curl's exit codes by address: {answered}")


def _curl(machine: Machine, host: str, address: str) -> int:
    """Asks for the account at an address; any answer of it is 0."""
    where = ("--resolve", f"{host}:443:{address}", f"https://{host}/")
    quiet = ("--silent", "--output", "/dev/null", "--max-time", str(SILENCE_S))
    return machine.run("curl", *quiet, *where, check=False).returncode


def _resumed_at(head: Machine) -> str:
    """Returns the environment steps at which the payload has continued a checkpoint."""
    said = head.run("journalctl", "--unit=experiments", "--output=cat").stdout
    found = RESUMED.search(said)
    if found is None:
        raise UnexpectedError("the training has started from the beginning")
    return found[1]
