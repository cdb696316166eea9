"""The stage: a cloud whose resources are made on this machine, for Pulumi's engine or its mocks."""

from __future__ import annotations

import uuid

from rehearsal import paths
from rehearsal.azure import metadata_service, metadata_state
from rehearsal.azure.blob_storage import BlobStorage
from rehearsal.azure.resource_kinds import SUBSCRIPTION, Properties
from rehearsal.azure.resources import AzureError, HalfMadeError
from rehearsal.machines.machine import Machine, all_machines
from rehearsal.machines.run_command import RunCommandError, execute
from rehearsal.network import bridges
from rehearsal.plan import Plan, Record, Records, free_address, free_public_address, plan
from rehearsal.records import changing_records, read_records

METADATA = paths.RUN / "metadata.json"
STORAGE = paths.RUN / "storage"
RUN_COMMAND = "VirtualMachineRunCommandByVirtualMachine"


class Stage:
    """Makes, changes and unmakes resources; each call leaves everything as it is declared."""

    def create(self, token: str, resource_id: str, inputs: Properties) -> Properties:
        kind = token.rpartition(":")[2]
        with changing_records() as records:
            if resource_id in records:
                raise AzureError(f"cannot create already existing resource '{resource_id}'")
            outputs = _added(kind, resource_id, inputs, records)
            records[resource_id] = Record(kind, inputs, outputs)
            converge(records)
        if kind == RUN_COMMAND:
            _execute(resource_id, inputs, outputs)
        return outputs

    def update(
        self, token: str, resource_id: str, old: Properties, inputs: Properties
    ) -> Properties:
        with changing_records() as records:
            record = records[resource_id]
            records[resource_id] = Record(record.kind, inputs, record.outputs)
            converge(records)
        if record.kind == RUN_COMMAND:
            _execute(resource_id, inputs, record.outputs)
        return record.outputs

    def delete(self, token: str, resource_id: str, inputs: Properties) -> None:
        """Deletes it with all that is in it."""
        with changing_records() as records:
            for other in list(records):
                if f"{other}/".startswith(f"{resource_id}/"):
                    del records[other]
            converge(records)

    def invoke(self, token: str, arguments: Properties) -> Properties:
        if token != "azure-native:authorization:getClientConfig":
            raise AzureError(f"the rehearsal has no function {token}")
        return {"subscriptionId": SUBSCRIPTION, "clientId": "", "objectId": "", "tenantId": ""}


def open_stage() -> None:
    """Makes what Azure has before anybody declares anything."""
    paths.RUN.mkdir(parents=True)
    bridges.open_network()
    metadata_service.start(METADATA, paths.RUN / "metadata.log")


def converge(records: Records) -> None:
    """Makes what runs on this machine what the records say; what is right stays as it is."""
    wanted = plan(records)
    declared = {machine.name: machine for machine in wanted.machines}
    for machine in all_machines():
        if machine.declared != declared.get(machine.name):
            machine.delete()
            metadata_state.remove_instance(METADATA, machine.name)
    bridges.apply(wanted)
    storage = storage_accounts()
    _converge_storage(storage, wanted)
    there = {machine.name for machine in all_machines()}
    for name, wanted_machine in declared.items():
        if name not in there:
            metadata_state.put_instance(METADATA, wanted.instances[name])
            hosts = "".join(
                f"{paths.BLOB_ADDRESS} {account}.blob.core.windows.net\n"
                for account in wanted.accounts
            )
            Machine.create(wanted_machine, hosts, storage.ca_certificate).start()


def storage_accounts() -> BlobStorage:
    return BlobStorage(STORAGE, paths.BLOB_ADDRESS)


def _converge_storage(storage: BlobStorage, wanted: Plan) -> None:
    for account, containers in wanted.containers.items():
        if account not in storage.accounts():
            storage.add_account(account)
        there = set(storage.containers(account))
        for container in set(containers) - there:
            storage.create_container(account, container)
        for container in there - set(containers):
            storage.delete_container(account, container)
    for account in set(storage.accounts()) - set(wanted.containers):
        storage.remove_account(account)


def _added(kind: str, resource_id: str, inputs: Properties, records: Records) -> Properties:
    """Returns what Azure adds to a resource's inputs when it is made."""
    match kind:
        case "PublicIPAddress":
            return {"ipAddress": free_public_address(records)}
        case "NetworkInterface":
            (configuration,) = inputs["ipConfigurations"]
            address = free_address(records, configuration["subnet"]["id"])
            return {"ipConfigurations": [{**configuration, "privateIPAddress": address}]}
        case "PrivateEndpoint":
            return {"customDnsConfigs": [{"ipAddresses": [paths.BLOB_ADDRESS]}]}
        case "UserAssignedIdentity":
            return {
                f"{what}Id": str(uuid.uuid5(uuid.NAMESPACE_URL, what + resource_id))
                for what in ("principal", "client")
            }
    return {}


def _execute(resource_id: str, inputs: Properties, outputs: Properties) -> None:
    vm = read_records()[resource_id.partition("/runCommands/")[0]]
    machine = Machine(vm.inputs["osProfile"]["computerName"])
    try:
        execute(machine, inputs["source"]["script"], float(inputs["timeoutInSeconds"]))
    except RunCommandError as error:
        if inputs.get("treatFailureAsDeploymentFailure"):
            raise HalfMadeError(str(error), outputs) from None
