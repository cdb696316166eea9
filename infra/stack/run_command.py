"""A managed run command on the head, which `up` executes again until it has succeeded."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
from pulumi_azure_native import compute

from infra.stack.head import Head
from infra.stack.last_start import script_to_send, tell_reason
from infra.stack.naming import Naming

REPORTS_WITHIN_S = 60
"""How much longer Azure waits than the script itself."""


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
                on_error=[pulumi.ErrorHook(f"reason-{name}", tell_reason)]
            ),
            custom_timeouts=pulumi.CustomTimeouts(create="2h", update="2h"),
        ),
    )
