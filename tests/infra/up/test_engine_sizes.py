"""Other sizes with Pulumi's real engine: machines that run keep theirs, so they are replaced."""

from __future__ import annotations

import pytest

from tests.infra.up import engine_stack
from tests.infra.up.engine_stack import Stack, needs_pulumi

stack, declared = engine_stack.stack, engine_stack.declared
pytestmark = [pytest.mark.slow, needs_pulumi]


def test_another_size_of_the_workers_replaces_the_scale_set(declared: Stack) -> None:
    declared.config("workerSize", "Standard_D4as_v5")
    # The run command `scaling` brings the autoscaler the CPUs of a worker.
    assert declared.steps() == {
        "replace": {"VirtualMachineScaleSet"},
        "update": {"VirtualMachineRunCommandByVirtualMachine"},
    }


def test_another_size_of_the_head_replaces_it(declared: Stack) -> None:
    declared.config("headSize", "Standard_NC8as_T4_v3")
    replaced = {"VirtualMachine", "VirtualMachineRunCommandByVirtualMachine"}
    assert declared.steps() == {"replace": replaced}
