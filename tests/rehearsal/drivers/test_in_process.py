"""The stack's program on the mocks, with everything that Pulumi's engine would do."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pulumi
import pytest
from pulumi.runtime.settings import SETTINGS

from rehearsal.azure.azure_errors import ArmError
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import Resource
from rehearsal.azure.resources.run_commands import RUN_COMMAND, Execution
from rehearsal.drivers.driver import Result
from rehearsal.drivers.in_process import InProcess
from rehearsal.scenario.stack_changes import KEPT
from tests.infra.declared_stack import REQUIRED
from tests.infra.up.failing_azure import REASON, FailingAzure

pytestmark = pytest.mark.slow

Up = Callable[..., Result]


@pytest.fixture
def azure(tmp_path: Path) -> FailingAzure:
    return FailingAzure(tmp_path / "azure.json")


@pytest.fixture
def driver(azure: FailingAzure) -> InProcess:
    return InProcess(azure)


@pytest.fixture
def up(driver: InProcess) -> Up:
    return lambda **config: driver.up({**REQUIRED, **config})


def test_up_makes_every_resource_and_tells_the_outputs(up: Up, azure: FailingAzure) -> None:
    result = up()
    assert not result.error
    assert {operation for operation, _ in result.operations} == {"create"}
    assert result.outputs["ssh"].startswith("ssh volley@")
    assert any("/virtualMachines/" in key for key in azure.resources())


def test_a_second_up_changes_nothing(up: Up) -> None:
    up()
    assert up().operations == frozenset()


def test_more_workers_update_a_run_command_alone(up: Up) -> None:
    up()
    assert up(maxWorkers="5").operations == {("update", RUN_COMMAND)}


def test_another_boot_replaces_the_machines_and_the_run_command_with_them(up: Up) -> None:
    up()
    assert up(aptPackages='["htop"]').operations == {
        ("replace", "VirtualMachine"),
        ("replace", "VirtualMachineScaleSet"),
        ("replace", RUN_COMMAND),
    }


@pytest.mark.parametrize(
    ("change", "operations"),
    [
        (
            {"workerSize": "Standard_D4as_v5"},
            # The run command `scaling` tells the autoscaler the CPUs of a worker.
            {("replace", "VirtualMachineScaleSet"), ("update", RUN_COMMAND)},
        ),
        (
            {"headSize": "Standard_NC8as_T4_v3"},
            {("replace", "VirtualMachine"), ("replace", RUN_COMMAND)},
        ),
    ],
    ids=["workers", "head"],
)
def test_machines_of_another_size_replace_the_running_ones(
    up: Up, change: dict[str, str], operations: set[tuple[str, str]]
) -> None:
    up()
    assert up(**change).operations == operations


def test_what_is_declared_no_more_is_deleted(
    up: Up, driver: InProcess, azure: FailingAzure
) -> None:
    up()
    (key,) = [key for key in driver.states if key.endswith("Identity::volley-rehearsal-head")]
    token, old = driver.states[key].token, f"{driver.states[key].resource_id}-old"
    azure.create(token, old, {})
    driver.states[f"{token}::old"] = replace(driver.states[key], resource_id=old)
    assert up().operations == {("delete", "UserAssignedIdentity")}
    assert old not in azure.resources()


def test_a_start_that_failed_says_why_and_is_tried_again(up: Up, azure: FailingAzure) -> None:
    azure.failing = RUN_COMMAND
    assert REASON in up().error
    azure.failing = ""
    assert up().operations == {("update", RUN_COMMAND)}
    assert up().operations == frozenset()


def test_an_output_that_an_earlier_program_left_pending_is_not_waited_for(up: Up) -> None:
    loop = asyncio.new_event_loop()
    SETTINGS.outputs.add(left := loop.create_future())
    loop.close()
    try:
        assert not up().error
    finally:
        SETTINGS.outputs.discard(left)


def test_wrong_configuration_makes_nothing(up: Up, azure: FailingAzure) -> None:
    assert "maxWorkers" in up(maxWorkers="-1").error
    assert not azure.state_file.path.exists()


def test_destroy_leaves_nothing_but_the_results(
    up: Up, driver: InProcess, azure: FailingAzure
) -> None:
    up()
    driver.destroy()
    kinds = sorted(resource.kind for resource in azure.resources().values())
    assert kinds == KEPT


def test_a_hook_that_asks_for_it_gets_a_retry(
    up: Up, azure: FailingAzure, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def retry_twice(failed: pulumi.ErrorHookArgs) -> bool:
        seen.append(list(failed.errors))
        if len(seen) == 2:
            azure.refused = {}
        return True

    monkeypatch.setattr("infra.stack.run_command.tell_reason", retry_twice)
    refusal = ArmError("Conflict", "not now")
    azure.refused = {RUN_COMMAND: refusal}
    assert not up().error
    assert seen == [[str(refusal)], [str(refusal)] * 2]


class EndlessAzure(Azure):
    """An Azure whose scripts never end; the first status query sends this process a signal."""

    looked = False

    def outcome(self, vm: Resource, execution_id: str) -> Execution | None:
        if not self.looked:
            self.looked = True
            os.kill(os.getpid(), signal.SIGUSR1)
        return None


@pytest.mark.timeout(60)
def test_a_signal_ends_an_up_that_waits_for_a_script(tmp_path: Path) -> None:
    def end(*_: object) -> None:
        raise SystemExit(143)

    before = signal.signal(signal.SIGUSR1, end)
    try:
        with pytest.raises(SystemExit):
            InProcess(EndlessAzure(tmp_path / "azure.json")).up(REQUIRED)
    finally:
        signal.signal(signal.SIGUSR1, before)
