"""Pulumi does not see that a head is stopped, so `up` asks Azure and warns."""

from __future__ import annotations

from pathlib import Path

import pulumi
import pytest

from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import all_of
from rehearsal.azure.resources.run_commands import RUN_COMMAND
from rehearsal.drivers.in_process import InProcess
from tests.infra.declared_stack import REQUIRED

pytestmark = pytest.mark.slow

START = "Next: volley start;"


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", said.append)
    return said


@pytest.fixture
def driver(tmp_path: Path) -> InProcess:
    """A driver with a stack whose head was deallocated."""
    found = InProcess(Azure(tmp_path / "azure.json"))
    assert not found.up(REQUIRED).error
    (vm_id,) = all_of(found.azure.resources(), "VirtualMachine")
    found.azure.deallocate(vm_id)
    return found


def test_up_names_the_command_that_starts_a_stopped_head(
    driver: InProcess, warnings: list[str]
) -> None:
    result = driver.up(REQUIRED)
    assert not result.error
    assert result.operations == frozenset()
    (warning,) = warnings
    assert START in warning


def test_a_start_for_a_stopped_head_fails_with_the_same_words(
    driver: InProcess, warnings: list[str]
) -> None:
    result = driver.up({**REQUIRED, "clusterCoordinationTimeoutSeconds": "901"})
    assert "VM is not running" in result.error
    assert len(warnings) == 1


def test_a_start_that_a_stopped_head_refused_is_made_by_the_next_up(driver: InProcess) -> None:
    changed = {**REQUIRED, "clusterCoordinationTimeoutSeconds": "901"}
    driver.up(changed)
    (vm_id,) = all_of(driver.azure.resources(), "VirtualMachine")
    driver.azure.start(vm_id)
    assert driver.up(changed).operations == {("update", RUN_COMMAND)}
    assert driver.up(changed).operations == frozenset()


def test_a_head_that_runs_is_not_mentioned(tmp_path: Path, warnings: list[str]) -> None:
    driver = InProcess(Azure(tmp_path / "azure.json"))
    for _ in range(2):
        assert not driver.up(REQUIRED).error
    assert warnings == []
