"""No update of the scale set may change its number of workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.error_codes import WORKERS_HAVE_CHANGED
from rehearsal.azure.management.management_faults import Faults
from rehearsal.azure.management.scale_set_changes import SetMachines
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import all_of
from rehearsal.drivers.in_process import InProcess
from tests.infra.declared_stack import REQUIRED

TAGGED = {**REQUIRED, "tags": '{"owner": "somebody"}'}
"""A configuration that changes the scale set in place."""


@pytest.fixture
def driver(tmp_path: Path) -> InProcess:
    driver = InProcess(Azure(tmp_path / "azure.json"))
    assert not driver.up(REQUIRED).error
    return driver


def capacity(azure: Azure) -> int:
    (found,) = all_of(azure.resources(), "VirtualMachineScaleSet").values()
    return int(found.inputs["sku"]["capacity"])


def test_an_update_that_would_delete_workers_is_refused_with_what_to_type(
    driver: InProcess,
) -> None:
    (set_id,) = all_of(driver.azure.resources(), "VirtualMachineScaleSet")
    SetMachines(driver.azure).resize(set_id, 3, "", Faults())
    error = driver.up(TAGGED).error
    assert f"{WORKERS_HAVE_CHANGED}: the cluster has 3 workers" in error
    assert "Next: volley up" in error
    assert capacity(driver.azure) == 3


def test_an_update_with_the_same_number_of_workers_is_made(driver: InProcess) -> None:
    result = driver.up(TAGGED)
    assert not result.error
    assert ("update", "VirtualMachineScaleSet") in result.operations
