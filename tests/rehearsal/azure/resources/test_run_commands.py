"""A managed run command: when Azure executes it, and how Azure reports it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rehearsal.azure.azure_errors import AzureError, HalfMadeError
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import KINDS, Properties, Resource
from rehearsal.azure.resources.run_commands import GET, RUN_COMMAND, Execution

TOKEN = f"azure-native:compute:{RUN_COMMAND}"
NAMES: Properties = {"resourceGroupName": "g", "vmName": "head", "runCommandName": "training"}
VM = KINDS["VirtualMachine"].resource_id(NAMES)
COMMAND = KINDS[RUN_COMMAND].resource_id(NAMES)


def inputs(script: str) -> Properties:
    return {
        **NAMES,
        "source": {"script": script},
        "timeoutInSeconds": 60,
        "treatFailureAsDeploymentFailure": True,
    }


class Executing(Azure):
    """An Azure that records the scripts it executes; each has the outcome `ends`."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.executed: list[str] = []
        self.ends: Execution | None = Execution()

    def start_script(self, vm: Resource, execution_id: str, script: str, timeout_s: int) -> None:
        self.executed.append(script)

    def outcome(self, vm: Resource, execution_id: str) -> Execution | None:
        return self.ends


@pytest.fixture
def azure(tmp_path: Path) -> Executing:
    made = Executing(tmp_path / "azure.json")
    size = {"hardwareProfile": {"vmSize": "Standard_D2as_v5"}}
    made.create("azure-native:compute:VirtualMachine", VM, size)
    return made


def view(azure: Azure) -> Properties:
    command = azure.invoke(f"azure-native:compute:{GET}", {**NAMES, "expand": "instanceView"})
    instance_view: Properties = command["instanceView"]
    return instance_view


def test_a_script_is_executed_when_it_is_made_and_when_it_changes(azure: Executing) -> None:
    azure.create(TOKEN, COMMAND, inputs("one"))
    azure.update(COMMAND, inputs("two"))
    assert azure.executed == ["one", "two"]


def test_a_script_that_has_failed_is_not_executed_again(azure: Executing) -> None:
    azure.ends = Execution(1)
    with pytest.raises(HalfMadeError):
        azure.create(TOKEN, COMMAND, inputs("one"))
    azure.update(COMMAND, {**inputs("one"), "tags": {"a": "b"}})
    assert azure.executed == ["one"]
    assert view(azure)["executionState"] == "Failed"


def test_the_deployment_does_not_say_what_the_script_said(azure: Executing) -> None:
    azure.ends = Execution(1, error="E: no such package")
    with pytest.raises(HalfMadeError) as raised:
        azure.create(TOKEN, COMMAND, inputs("one"))
    assert 'Code="VMExtensionProvisioningError"' in str(raised.value)
    assert "no such package" not in str(raised.value)
    assert view(azure)["error"] == "E: no such package"


def test_a_failure_fails_the_deployment_only_where_that_is_asked_for(azure: Executing) -> None:
    azure.ends = Execution(1)
    azure.create(TOKEN, COMMAND, {**inputs("one"), "treatFailureAsDeploymentFailure": False})
    assert view(azure)["exitCode"] == 1


def test_the_last_4_kb_are_kept(azure: Executing) -> None:
    azure.ends = Execution(output="a" * 5000 + "end")
    azure.create(TOKEN, COMMAND, inputs("one"))
    assert len(view(azure)["output"]) == 4096
    assert view(azure)["output"].endswith("end")


def test_the_view_is_answered_only_when_it_is_asked_for(azure: Executing) -> None:
    azure.create(TOKEN, COMMAND, inputs("one"))
    assert "instanceView" not in azure.invoke(f"azure-native:compute:{GET}", NAMES)


def test_a_script_runs_on_when_nobody_waits_for_it(azure: Executing) -> None:
    class KilledError(Exception):
        pass

    def kill(*_: object) -> None:
        raise KilledError

    azure.outcome = kill  # type: ignore[assignment,method-assign]
    with pytest.raises(KilledError):
        azure.create(TOKEN, COMMAND, inputs("one"))
    later = Executing(azure.state_file.path)
    later.ends = None
    assert view(later)["executionState"] == "Running"
    later.ends = Execution(3)
    assert (view(later)["executionState"], view(later)["exitCode"]) == ("Failed", 3)


def test_a_run_command_that_does_not_exist_is_not_found(azure: Executing) -> None:
    with pytest.raises(
        AzureError, match=r'Status=404 Code="ResourceNotFound".*runCommands/training'
    ):
        view(azure)
