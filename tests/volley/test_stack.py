"""volley reads a stack that Pulumi's own engine has made."""

from __future__ import annotations

import pytest

from payload.errors import UserError
from tests.infra.up import engine_stack
from tests.infra.up.engine_stack import Stack as EngineStack
from tests.infra.up.engine_stack import needs_pulumi
from volley.stack import Stack

stack, declared = engine_stack.stack, engine_stack.declared
pytestmark = [pytest.mark.slow, needs_pulumi]


@pytest.fixture
def here(stack: EngineStack, home: object, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """The selected stack of a laptop in the project's folder."""
    monkeypatch.chdir(stack.folder)
    monkeypatch.setenv("VOLLEY_HOME", str(home))
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)
    return Stack()


def test_a_stack_that_was_never_up_has_no_cluster(here: Stack) -> None:
    with pytest.raises(UserError, match="the selected stack has no cluster"):
        here.outputs()


@pytest.mark.usefixtures("here")
def test_an_unknown_stack_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"--stack dve: .*\(did you mean dev\?\)"):
        Stack("dve").outputs()


def test_a_declared_stack_has_what_volley_needs(declared: EngineStack, here: Stack) -> None:
    (vm,) = [one for one in declared.azure().values() if one.kind == "VirtualMachine"]
    outputs = here.outputs()
    assert outputs.login.startswith("volley@")
    assert outputs.head_vm_id == vm.added["vmId"]
    assert outputs.head_id.endswith(f"/virtualMachines/{vm.inputs['vmName']}")
    assert outputs.price_per_hour > 0
    assert here.deletion() == ""


def test_another_selected_stack_is_not_remembered(declared: EngineStack, here: Stack) -> None:
    here.outputs()
    assert here.remembered() is not None
    declared.pulumi("stack", "init", "other")
    assert here.remembered() is None


def test_a_destroy_under_way_is_seen(declared: EngineStack, here: Stack) -> None:
    killed = declared.pulumi("destroy", "--yes", "--skip-preview", AZURE_KILL="before 3")
    assert killed.returncode != 0
    assert here.deletion() != ""
