"""Azure makes no machine of a size that the subscription cannot have, and none that cannot boot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rehearsal.azure.azure_errors import AzureError, RefusedError
from rehearsal.azure.management.management_faults import Faults
from rehearsal.azure.management.scale_set_changes import SetMachines
from rehearsal.azure.resources.azure_stand_in import Azure
from tests.rehearsal.azure.resources.scale_set_cloud import HEAD, SCALE_SET, declare, make

STORAGE: dict[str, dict[str, Any]] = {
    "Standard_D4as_v5": {"diskControllerType": "NVMe"},
    "Standard_D4ads_v6": {"osDisk": {"diffDiskSettings": {"placement": "ResourceDisk"}}},
}
"""Storage profiles that these sizes refuse."""


@pytest.fixture
def azure(tmp_path: Path) -> Azure:
    """A head and a scale set without machines."""
    made = Azure(tmp_path / "azure.json")
    declare(made, 0, ())
    return made


def head(azure: Azure, **inputs: Any) -> dict[str, Any]:
    return {**azure.resources()[HEAD].inputs, **inputs}


def create(azure: Azure, **inputs: Any) -> None:
    inputs = head(azure, **inputs)
    azure.delete(HEAD)
    make(azure, "VirtualMachine", HEAD, inputs)


def resize(azure: Azure, capacity: int) -> None:
    SetMachines(azure).resize(SCALE_SET, capacity, "", Faults())


def test_a_vm_of_a_restricted_size_is_refused(azure: Azure) -> None:
    azure.subscription.restricted = {"Standard_D4as_v5": ()}
    with pytest.raises(AzureError, match=r"SkuNotAvailable.*Standard_D4as_v5' is currently not"):
        create(azure)


def test_a_vm_that_exists_stays(azure: Azure) -> None:
    azure.subscription.restricted = {"Standard_D4as_v5": ()}
    azure.update(HEAD, head(azure, tags={"a": "b"}))


@pytest.mark.parametrize(("zones", "refused"), [(["1"], True), (["2"], False), (None, False)])
def test_a_zone_can_be_restricted(azure: Azure, zones: list[str] | None, refused: bool) -> None:
    azure.subscription.restricted = {"Standard_D4as_v5": ("1", "3")}
    if refused:
        with pytest.raises(AzureError, match="SkuNotAvailable"):
            create(azure, zones=zones)
    else:
        create(azure, zones=zones)


def test_a_restricted_scale_set_is_made_and_never_grows(azure: Azure) -> None:
    resize(azure, 2)
    azure.subscription.restricted = {"Standard_D2as_v5": ()}
    with pytest.raises(RefusedError, match="currently not available"):
        resize(azure, 3)
    resize(azure, 1)
    inputs = azure.resources()[SCALE_SET].inputs
    azure.delete(SCALE_SET)
    sku = {**inputs["sku"], "capacity": 0}
    make(azure, "VirtualMachineScaleSet", SCALE_SET, {**inputs, "sku": sku})
    with pytest.raises(RefusedError):
        resize(azure, 1)


@pytest.mark.parametrize("size", STORAGE)
def test_a_disk_that_the_size_does_not_have_is_refused(azure: Azure, size: str) -> None:
    storage = {"imageReference": {"id": "image"}, "osDisk": {}, **STORAGE[size]}
    with pytest.raises(AzureError, match=rf"InvalidParameter.*{size}"):
        create(azure, hardwareProfile={"vmSize": size}, storageProfile=storage)
