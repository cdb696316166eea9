"""A managed run command on the head, which `up` executes again until it has succeeded.

Azure does not execute an unchanged script again, whether or not it has failed
(https://github.com/Azure/azure-sdk-for-net/issues/47307). So each script contains the time when it
was sent: a new time after a start that did not succeed, otherwise the old one. Only Azure knows how
the last start ended; Pulumi's state does not.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import pulumi
from pulumi_azure_native import compute

from infra.stack.head import Head
from infra.stack.naming import Naming
from payload.errors import printable

REPORTS_WITHIN_S = 60
"""How much longer Azure waits than the script itself."""


TRAINING, HEAD_SOFTWARE, PAYLOAD = "training", "head-software", "payload"
"""The names of the run commands in Azure."""
SUCCEEDED = "Succeeded"
STOPPED = (
    "The cluster is asleep or its head is stopped, so nothing trains. Next: volley start; "
    "the training then continues."
)
FIRST_LINES = "#!/bin/bash\n# Sent {time}\n"

T = TypeVar("T")


@dataclass(frozen=True)
class LastStart:
    """The run command as it is in Azure."""

    script: str
    state: str
    """Azure's executionState; empty until the VM's agent has reported."""
    output: str
    """The last 4 KB of the script's output and errors."""

    @property
    def host_key(self) -> str:
        """The VM's host key, "ssh-ed25519 AAAA...", which install_head.sh prints; "" without it."""
        printed = re.search(r"^host key: (ssh-ed25519 [A-Za-z0-9+/=]+)$", self.output, re.MULTILINE)
        return printed[1] if printed else ""

    def time_to_send(self) -> str:
        """Returns the time for the next script: the old one, unless this start failed."""
        sent = re.search(r"^# Sent (\S+)$", self.script, re.MULTILINE)
        if sent is None or self.state not in ("", SUCCEEDED):
            return _now()
        return sent[1]


def script_to_send(
    name: str, script: str | pulumi.Output[str], group: pulumi.Input[str], vm: pulumi.Input[str]
) -> pulumi.Output[str]:
    """Returns a script that Azure executes if it has changed or if its last start failed.

    Args:
        name: Name of the run command.
    """

    def with_time(values: list[str]) -> str:
        text, *names = values
        if name == TRAINING and is_stopped(*names):
            pulumi.log.warn(STOPPED)
        before = last_start(name, *names)
        return FIRST_LINES.format(time=before.time_to_send() if before else _now()) + text

    return pulumi.Output.all(script, group, vm).apply(with_time)


def last_start(name: str, group: str, vm: str) -> LastStart | None:
    """Returns the run command from Azure; None if the VM has none of this name."""
    command = _existing(
        lambda: compute.get_virtual_machine_run_command_by_virtual_machine(
            expand="instanceView", resource_group_name=group, vm_name=vm, run_command_name=name
        )
    )
    if command is None:
        return None
    view = command.instance_view
    output = "\n".join(text.strip() for text in (view.output, view.error) if text)
    script = command.source.script if command.source else None
    return LastStart(script or "", view.execution_state or "", output)


def is_stopped(group: str, vm: str) -> bool:
    """Whether Azure has the VM and it does not run, which `pulumi refresh` does not see."""
    machine = _existing(
        lambda: compute.get_virtual_machine(
            expand="instanceView", resource_group_name=group, vm_name=vm
        )
    )
    if machine is None or machine.instance_view is None:
        return False
    codes = [status.code or "" for status in machine.instance_view.statuses or []]
    return any(code in ("PowerState/deallocated", "PowerState/stopped") for code in codes)


def tell_reason(failed: pulumi.ErrorHookArgs) -> bool:
    """Shows the output of a failed start, which Azure's own error may lack.

    Returns:
        False: the engine does not retry.
    """
    inputs = failed.new_inputs or {}
    name = inputs["runCommandName"]
    last = last_start(name, inputs["resourceGroupName"], inputs["vmName"])
    failure = "The training did not start" if name == TRAINING else f"The run command {name} failed"
    if last is not None and last.output:
        # An experiment on the head may have written it.
        pulumi.log.error(f"{failure}. Output on the head:\n{printable(last.output)}")
    return False


def _existing(get: Callable[[], T]) -> T | None:
    """Returns Azure's resource; None if it does not exist."""
    try:
        return get()
    except Exception as error:  # The SDK raises nothing narrower.
        if "NotFound" in str(error):
            return None
        raise


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def run_command_on_head(
    component: pulumi.Resource,
    naming: Naming,
    head: Head,
    name: str,
    script: str | pulumi.Output[str],
    timeout_s: int,
    after: Sequence[pulumi.Resource],
) -> compute.VirtualMachineRunCommandByVirtualMachine:
    """Declares a run command of a component.

    Args:
        name: Its name in Azure.
        script: Without its first lines, which hold the time when it was sent.
        timeout_s: Time after which the script ends by itself.
        after: The resources that must exist before it runs.
    """
    return compute.VirtualMachineRunCommandByVirtualMachine(
        naming.name(name),
        **naming.in_group,
        run_command_name=name,
        vm_name=head.vm.name,
        source=compute.VirtualMachineRunCommandScriptSourceArgs(
            script=script_to_send(name, script, naming.group, head.vm.name)
        ),
        timeout_in_seconds=timeout_s + REPORTS_WITHIN_S,
        async_execution=False,
        treat_failure_as_deployment_failure=True,
        opts=pulumi.ResourceOptions(
            parent=component,
            depends_on=[head.vm, *after],
            # It is deleted with the VM, and a new VM needs it again.
            replace_with=[head.vm],
            deleted_with=head.vm,
            delete_before_replace=True,
            hooks=pulumi.ResourceHookBinding(
                on_error=[pulumi.ErrorHook(naming.name(f"reason-{name}"), tell_reason)]
            ),
            custom_timeouts=pulumi.CustomTimeouts(create="2h", update="2h"),
        ),
    )
