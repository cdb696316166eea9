"""The backend: a stand-in for Azure that makes its resources real on this machine.

Pulumi runs `python -m rehearsal.backend` as azure-native's provider.
"""

from __future__ import annotations

from pathlib import Path

from rehearsal import shared_file
from rehearsal.addresses import BLOB_ADDRESS, LOGS_ADDRESS, LOGS_HOST, MANAGEMENT_ADDRESS
from rehearsal.azure.blob.blob_proxy import HOST_SUFFIX, Access
from rehearsal.azure.blob.blob_storage import BlobStorage
from rehearsal.azure.management import management_service
from rehearsal.azure.metadata import metadata_service, metadata_state
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.pulumi_provider import serve
from rehearsal.azure.resources.resource_kinds import Resource, Resources
from rehearsal.azure.resources.run_commands import Execution
from rehearsal.azure.resources.subscription import Subscription
from rehearsal.host_paths import ALLOWED, MANAGEMENT, METADATA, RESOURCES, RUN, STORAGE
from rehearsal.host_plan import Plan, plan
from rehearsal.machines import vm_agent
from rehearsal.machines.nspawn_machine import Machine, all_machines
from rehearsal.network import bridges

MANAGEMENT_SERVICE = "rehearsal.serve_management"
"""The module that serves management.azure.com for a Backend."""


def open_backend() -> None:
    """Makes what Azure has before a stack is declared."""
    RUN.mkdir(parents=True)
    bridges.open_network()
    metadata_service.start(METADATA, RUN / "metadata.log")
    ca = storage_accounts().ca_certificate
    management_service.start(RESOURCES, MANAGEMENT, ca, module=MANAGEMENT_SERVICE)


class Backend(Azure):
    """Makes resources real; changes only what differs from them."""

    def __init__(self, file: Path = RESOURCES) -> None:
        super().__init__(file)
        self.subscription = shared_file.read(ALLOWED, Subscription)

    def apply(self, resources: Resources) -> None:
        wanted = plan(resources)
        for machine in all_machines():
            if machine.spec != wanted.machines.get(machine.name):
                machine.delete()
                metadata_state.remove_instance(METADATA, machine.name)
        bridges.apply(wanted)
        storage = storage_accounts()
        _apply_storage(storage, wanted)
        existing = {machine.name for machine in all_machines()}
        for name, spec in wanted.machines.items():
            if name not in existing:
                metadata_state.put_instance(METADATA, wanted.instances[name])
                machine = Machine.create(spec, _hosts(wanted, name), storage.ca_certificate)
                # The next step switches it on, unless it is deallocated.
                machine.switch_off()
            else:
                user_data = wanted.instances[name].user_data
                metadata_state.set_user_data(METADATA, name, user_data)
            _set_power(Machine(name), name not in wanted.deallocated)

    def is_unfinished(self) -> bool:
        return any(machine.has_shut_down for machine in all_machines())

    def start_script(self, vm: Resource, execution_id: str, script: str, timeout_s: int) -> None:
        vm_agent.start(_machine_of(vm), execution_id, script, timeout_s)

    def outcome(self, vm: Resource, execution_id: str) -> Execution | None:
        return vm_agent.outcome(_machine_of(vm), execution_id)


def _machine_of(vm: Resource) -> Machine:
    return Machine(vm.inputs["osProfile"]["computerName"])


def _hosts(wanted: Plan, machine: str) -> str:
    """Returns lines of a machine's /etc/hosts, in place of Azure's name server."""
    accounts = "".join(
        f"{BLOB_ADDRESS} {account}{HOST_SUFFIX}\n" for account in wanted.public_accounts(machine)
    )
    logs = f"{LOGS_ADDRESS} {LOGS_HOST}\n"
    return f"{MANAGEMENT_ADDRESS} {management_service.HOST}\n{logs}{accounts}"


def _set_power(machine: Machine, is_on: bool) -> None:
    """Starts or stops a machine, after a shutdown that is under way."""
    if machine.has_shut_down:
        machine.switch_off()
    if is_on and machine.power == "off":
        machine.start()
    elif not is_on and machine.power == "on":
        machine.shut_down()


def storage_accounts() -> BlobStorage:
    return BlobStorage(STORAGE, BLOB_ADDRESS)


def _apply_storage(storage: BlobStorage, wanted: Plan) -> None:
    for name, account in wanted.accounts.items():
        if name not in storage.accounts():
            storage.add_account(name)
        existing = set(storage.containers(name))
        for container in set(account.containers) - existing:
            storage.create_container(name, container)
        for container in existing - set(account.containers):
            storage.delete_container(name, container)
    for name in set(storage.accounts()) - set(wanted.accounts):
        storage.remove_account(name)
    account_ids = {name: account.resource_id for name, account in wanted.accounts.items()}
    storage.grant(Access(account_ids, tuple(wanted.assignments)))
    storage.answer_at([endpoint.address for endpoint in wanted.endpoints])


if __name__ == "__main__":
    serve(Backend())
