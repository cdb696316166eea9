"""The order of resources, where a machine could not boot without another resource."""

from __future__ import annotations

import pytest

from rehearsal.azure.resources.run_commands import RUN_COMMAND
from tests.infra.declared_stack import Declared


@pytest.mark.parametrize("machine", ["VirtualMachine", "VirtualMachineScaleSet"])
def test_a_machine_boots_when_its_roles_are_assigned(any_stack: Declared, machine: str) -> None:
    # The lease needs the scale set, which needs the head; a machine retries without this role.
    roles = {role.name for role in any_stack.all("RoleAssignment") if "lease" not in role.name}
    assert roles
    assert roles <= any_stack.resource(machine).waits_for


def test_the_training_starts_when_head_and_workers_are_there(any_stack: Declared) -> None:
    machines = {
        any_stack.resource(kind).name for kind in ("VirtualMachine", "VirtualMachineScaleSet")
    }
    software = any_stack.resource(RUN_COMMAND, "head-software")
    parts = [any_stack.resource(RUN_COMMAND, f"payload-{number}") for number in (1, 2)]
    training = any_stack.resource(RUN_COMMAND, "training")
    assert machines <= software.waits_for
    for part in parts:
        assert software.name in part.waits_for
        assert part.name in training.waits_for


def test_the_second_subnet_waits_for_the_first(any_stack: Declared) -> None:
    # Azure changes a vnet's subnets one at a time.
    subnets = any_stack.all("Subnet")
    assert not subnets or any_stack.resource("Subnet", "head").name in subnets[1].waits_for
