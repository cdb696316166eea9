"""The stand-in for Azure: the resources that exist, and what creating or changing one does."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rehearsal.azure.azure_errors import ArmError, AzureError, HalfMadeError, not_found
from rehearsal.azure.resources import refusals, resource_skus, roles, run_commands
from rehearsal.azure.resources.resource_kinds import (
    KINDS,
    SUBSCRIPTION,
    Properties,
    Resource,
    Resources,
    short_type,
)
from rehearsal.azure.resources.returned_properties import added_properties
from rehearsal.azure.resources.run_commands import RUN_COMMAND, Execution
from rehearsal.azure.resources.scale_set_machines import resized
from rehearsal.azure.resources.state_file import State, StateFile
from rehearsal.azure.resources.subscription import Subscription
from rehearsal.azure.resources.virtual_machines import (
    NOT_RUNNING,
    RUNS,
    exceeded_quota,
    power_state,
)

POLL_S = 0.1
WORKSPACES = "/providers/Microsoft.OperationalInsights/workspaces"
"""Of Log Analytics, which others make."""
CHANGED_BY_AZURE = ("identity", "ipConfigurations", "storageProfile")
"""Azure returns these inputs in a different form than declared."""


class AbandonedError(BaseException):
    """The rehearsal ends while a script runs; not an Exception, since Azure has not failed."""


class Azure:
    """All resources, in a file: each `pulumi up` is a process of its own.

    They exist in the file only; a subclass makes them real in `apply`. Methods may be called from
    several threads. `inputs` contain all names and none of the engine's own keys.
    """

    def __init__(self, file: Path) -> None:
        self.state_file = StateFile(file)
        self.refused: dict[str, ArmError] = {}
        """Types that Azure cannot make at the moment for lack of capacity, each with its error."""
        self.quota: Mapping[str, int] = {}
        """Limits of vCPUs by the names of quotas; a quota that is missing here is unlimited."""
        self.spot_machines: int | None = None
        """How many Spot machines a scale set gets at most; None: no limit."""
        self.subscription = Subscription()
        self.abandoned = threading.Event()
        """Set when nobody waits for a script any more."""

    def resources(self) -> dict[str, Resource]:
        """Returns all resources that exist, by their ids, the oldest first."""
        return self.state_file.read().resources

    def create(self, token: str, resource_id: str, inputs: Properties) -> Properties:
        """Makes a resource of a type such as azure-native:network:Subnet; returns what Azure adds.

        Raises:
            AzureError: It exists already, or Azure refuses to make it at the moment.
            HalfMadeError: It exists now, but did not come up.
        """
        kind = short_type(token)
        with self.state_file.changed() as state:
            if resource_id in state.resources:
                raise AzureError(f"cannot create already existing resource '{resource_id}'")
            state.refuse_held("create", resource_id)
            for interface in refusals.interfaces_of(inputs):
                state.refuse_held("attach", interface, by=resource_id)
        made = self._made(Resource(kind, inputs, {}), resource_id, state.resources)
        if error := self._refusal(resource_id, made, state.resources):
            with self.state_file.changed() as state:
                state.holds += refusals.after_failed_creation(resource_id, inputs, time.time())
            raise AzureError(error)
        with self.changing() as state:
            made = self._made(made, resource_id, state.resources)
            state.resources[resource_id] = made
        self._execute(resource_id)
        return made.added

    def update(self, resource_id: str, inputs: Properties) -> Properties:
        """Changes the inputs of a resource; returns what Azure adds to them.

        Raises:
            AzureError: Azure refuses the change.
            HalfMadeError: It has changed, but did not come up.
        """
        with self.changing() as state:
            before = state.resources[resource_id]
            if error := refusals.change_of(before.kind, before.inputs, inputs):
                raise AzureError(error)
            changed = self._made(replace(before, inputs=inputs), resource_id, state.resources)
            if error := self._refusal(resource_id, changed, state.resources):
                raise AzureError(error)
            state.resources[resource_id] = changed
        if inputs.get("source") != before.inputs.get("source"):
            self._execute(resource_id)
        return changed.added

    def delete(self, resource_id: str) -> None:
        """Deletes a resource with everything in it, unless something still uses it.

        A group waits for what lingers in it.
        """
        if resource_id not in self.resources():
            return
        if self.resources()[resource_id].kind == "ResourceGroup":
            while self.state_file.read().lingers_in(resource_id):
                time.sleep(POLL_S)
        with self.changing() as state:
            if error := refusals.users_of(resource_id, state.resources):
                raise AzureError(error)
            state.refuse_held("delete", resource_id)
            inside = f"{resource_id}/"
            deleted = {k: v for k, v in state.resources.items() if f"{k}/".startswith(inside)}
            for other in deleted:
                del state.resources[other]
            state.holds += refusals.after_deletion(deleted, time.time())

    def invoke(self, token: str, arguments: Properties) -> Properties:
        match short_type(token):
            case "getClientConfig":
                nobody = {"clientId": "", "objectId": "", "tenantId": ""}
                return {"subscriptionId": SUBSCRIPTION, **nobody}
            case "getClientToken":
                return {"token": "of nobody"}
            case "getSubnet":
                return self._existing(KINDS["Subnet"].resource_id(arguments)).inputs
            case (
                "getVirtualMachine"
                | "getVirtualMachineScaleSet"
                | "getBlobServiceProperties"
                | "getResourceGroup"
                | "getUserAssignedIdentity"
            ) as function:
                kind = KINDS[function.removeprefix("get")]
                return self._described(kind.resource_id(arguments))
            case "getWorkspace":
                group = KINDS["ResourceGroup"].resource_id(arguments)
                return self._described(f"{group}{WORKSPACES}/{arguments['workspaceName']}")
            case run_commands.GET:
                return self._run_command(KINDS[RUN_COMMAND].resource_id(arguments), arguments)
        raise AzureError(f"the stand-in has no function {token}")

    def deallocate(self, vm_id: str) -> None:
        """Stops a VM as `az vm deallocate` does; all its resources stay as they were declared."""
        self.set_power(vm_id, "PowerState/deallocated")

    def start(self, vm_id: str) -> None:
        self.set_power(vm_id, RUNS)

    def apply(self, resources: Resources) -> None:
        """Makes the resources real; after an exception they are as before."""

    def is_unfinished(self) -> bool:
        """Whether something that `apply` began has ended, so that it must be called again."""
        return False

    def start_script(self, vm: Resource, execution_id: str, script: str, timeout_s: int) -> None:
        """Starts a run command's script on its VM; here VMs are not real."""

    def outcome(self, vm: Resource, execution_id: str) -> Execution | None:
        """Returns how a script ended; None while it runs."""
        return Execution()

    def _made(self, declared: Resource, resource_id: str, resources: Resources) -> Resource:
        added = added_properties(declared.kind, resource_id, declared.inputs, resources)
        made = replace(declared, added=added)
        if made.kind == "VirtualMachineScaleSet":
            return resized(made, time.time(), self.spot_machines)
        return made

    def _refusal(self, resource_id: str, made: Resource, resources: Resources) -> ArmError | None:
        """Returns why Azure does not make or change a resource at the moment."""
        if error := self.subscription.refusal(resource_id, made):
            return error
        if made.kind in self.refused and resource_id not in resources:
            return self.refused[made.kind]
        if made.kind == "RoleAssignment":
            return roles.refusal(made.inputs)
        if made.kind == RUN_COMMAND:
            vm = resources.get(_vm_id(resource_id))
            return NOT_RUNNING if vm is not None and power_state(vm) != RUNS else None
        if made.kind in {"VirtualMachine", "VirtualMachineScaleSet"} and (
            error := resource_skus.refusal(
                made, resources.get(resource_id), self.subscription.restricted
            )
        ):
            return error
        return exceeded_quota(resources, {**resources, resource_id: made}, self.quota)

    def _execute(self, resource_id: str) -> None:
        """Executes a resource if it is a run command.

        Raises HalfMadeError if the script failed and that fails the deployment.
        """
        command = self.resources()[resource_id]
        if command.kind != RUN_COMMAND:
            return
        view = run_commands.started(str(uuid.uuid4()))
        self._set_view(resource_id, view)
        script, timeout_s = command.inputs["source"]["script"], command.inputs["timeoutInSeconds"]
        self.start_script(self._vm_of(resource_id), view["executionId"], script, int(timeout_s))
        while (execution := self._outcome(resource_id)) is None:
            if self.abandoned.wait(POLL_S):
                raise AbandonedError
        if not execution.succeeded and command.inputs.get("treatFailureAsDeploymentFailure"):
            name = resource_id.rpartition("/")[2]
            raise HalfMadeError(str(run_commands.deployment_error(name, execution)), command.added)

    def _outcome(self, resource_id: str) -> Execution | None:
        """Returns how a run command ended, and keeps it; None while it runs."""
        view = self.resources()[resource_id].instance_view
        execution = self.outcome(self._vm_of(resource_id), view["executionId"])
        if execution is not None:
            self._set_view(resource_id, run_commands.ended(view, execution))
        return execution

    def _run_command(self, resource_id: str, arguments: Properties) -> Properties:
        command = self._existing(resource_id)
        if command.instance_view.get("executionState") == run_commands.RUNNING:
            self._outcome(resource_id)
            command = self._existing(resource_id)
        answer = self._described(resource_id)
        if arguments.get("expand", "").lower() == "instanceview":
            answer["instanceView"] = command.instance_view
        return answer

    def _described(self, resource_id: str) -> Properties:
        resource = self._existing(resource_id)
        answer = {**resource.inputs, **resource.added, "id": resource_id}
        if resource.kind == "VirtualMachine":
            answer["instanceView"] = {"statuses": [{"code": power_state(resource)}]}
        return answer

    def _existing(self, resource_id: str) -> Resource:
        resource = self.resources().get(resource_id)
        if resource is None:
            raise AzureError(not_found(resource_id))
        return resource

    def _vm_of(self, run_command_id: str) -> Resource:
        return self._existing(_vm_id(run_command_id))

    def set_power(self, vm_id: str, state: str) -> None:
        with self.changing() as changed:
            view = {"powerState": state}
            changed.resources[vm_id] = replace(changed.resources[vm_id], instance_view=view)

    def _set_view(self, resource_id: str, view: Properties) -> None:
        with self.state_file.changed() as state:
            resource = state.resources[resource_id]
            state.resources[resource_id] = replace(resource, instance_view=view)

    @contextmanager
    def changing(self) -> Iterator[State]:
        """Yields the state; makes the changed state real."""
        with self.state_file.changed() as state:
            yield state
            self.apply(state.resources)


def _vm_id(run_command_id: str) -> str:
    return run_command_id.partition("/runCommands/")[0]
