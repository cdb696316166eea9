"""Machines of sizes with NVMe, and machines in one availability zone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.infra.declared_stack import Declared, declare_stack

Stack = Callable[[str], Declared]


@pytest.fixture
def nvme(stack: Stack) -> Declared:
    return stack("nvme in one zone")


def test_sizes_that_boot_from_nvme_alone_get_its_controller(nvme: Declared) -> None:
    assert nvme.one("VirtualMachine")["storageProfile"]["diskControllerType"] == "NVMe"
    profile = nvme.one("VirtualMachineScaleSet")["virtualMachineProfile"]
    assert profile["storageProfile"]["diskControllerType"] == "NVMe"


def test_an_ephemeral_disk_is_on_the_local_disk_that_the_size_has(
    nvme: Declared, stack: Stack
) -> None:
    for declared, placement in (
        (nvme, "NvmeDisk"),
        (stack("gpu workers, ephemeral"), "ResourceDisk"),
    ):
        profile = declared.one("VirtualMachineScaleSet")["virtualMachineProfile"]
        settings = profile["storageProfile"]["osDisk"]["diffDiskSettings"]
        assert settings == {"option": "Local", "placement": placement}


def test_a_local_disk_that_is_too_small_takes_no_os_disk() -> None:
    declared = declare_stack(workerSize="Standard_D2ads_v6", maxWorkers="1")  # 110 GiB for 128
    profile = declared.one("VirtualMachineScaleSet")["virtualMachineProfile"]
    assert "diffDiskSettings" not in profile["storageProfile"]["osDisk"]


def test_older_sizes_leave_the_controller_to_azure(stack: Stack) -> None:
    dev = stack("dev")
    assert "diskControllerType" not in dev.one("VirtualMachine")["storageProfile"]
    profile = dev.one("VirtualMachineScaleSet")["virtualMachineProfile"]
    assert "diskControllerType" not in profile["storageProfile"]


def test_several_worker_sizes_are_one_scale_set_in_their_order(stack: Stack) -> None:
    scale_set = stack("several worker sizes").one("VirtualMachineScaleSet")
    assert scale_set["sku"]["name"] == "Mix"
    assert scale_set["skuProfile"] == {
        "allocationStrategy": "Prioritized",
        "vmSizes": [
            {"name": "Standard_D2as_v5", "rank": 0},
            {"name": "Standard_D2s_v5", "rank": 1},
        ],
    }
    assert scale_set["zones"] == ["1", "3"]


IN_A_ZONE = ("NatGateway", "PublicIPAddress", "VirtualMachine", "VirtualMachineScaleSet")


def test_everything_that_can_be_in_a_zone_is_in_the_given_one(nvme: Declared) -> None:
    zones = {
        resource.name: resource.inputs["zones"]
        for resource in nvme.resources
        if resource.type in IN_A_ZONE
    }
    assert len(zones) == 5
    assert all(zone == ["2"] for zone in zones.values())


def test_without_a_zone_azure_chooses(stack: Stack) -> None:
    assert not any("zones" in resource.inputs for resource in stack("dev").resources)
