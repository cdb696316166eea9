"""Azure refuses to delete resources in use, and to reuse those that were just deleted or failed."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rehearsal.azure.azure_errors import ArmError, AzureError
from rehearsal.azure.resources import refusals as holds
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import KINDS, Properties

GROUP = {"resourceGroupName": "g"}
VNET = {**GROUP, "virtualNetworkName": "v"}
SUBNET = {**VNET, "subnetName": "s", "addressPrefix": "10.42.0.0/24"}
NIC = {**GROUP, "networkInterfaceName": "n"}
ACCOUNT = {**GROUP, "accountName": "results"}
CONTAINER = {**ACCOUNT, "containerName": "c"}


def id_of(kind: str, inputs: Properties) -> str:
    return KINDS[kind].resource_id(inputs)


SUBNET_ID = id_of("Subnet", SUBNET)
NIC_ID = id_of("NetworkInterface", NIC)
WORKERS: Properties = {
    **GROUP,
    "vmScaleSetName": "workers",
    "sku": {"name": "Standard_D2as_v5", "capacity": 2},
    "virtualMachineProfile": {
        "networkProfile": {
            "networkInterfaceConfigurations": [
                {"ipConfigurations": [{"subnet": {"id": SUBNET_ID}}]}
            ]
        },
        "osProfile": {"computerNamePrefix": "worker"},
    },
}
WORKERS_ID = id_of("VirtualMachineScaleSet", WORKERS)


@pytest.fixture
def azure(tmp_path: Path) -> Azure:
    made = Azure(tmp_path / "azure.json")
    make(made, "ResourceGroup", GROUP)
    make(made, "VirtualNetwork", VNET)
    make(made, "Subnet", SUBNET)
    return made


def make(azure: Azure, kind: str, inputs: Properties) -> str:
    made = id_of(kind, inputs)
    azure.create(f"azure-native:any:{kind}", made, inputs)
    return made


def make_interface(azure: Azure) -> None:
    make(azure, "NetworkInterface", {**NIC, "ipConfigurations": [{"subnet": {"id": SUBNET_ID}}]})


def vm(name: str) -> Properties:
    return {
        **GROUP,
        "vmName": name,
        "networkProfile": {"networkInterfaces": [{"id": NIC_ID}]},
        "osProfile": {"computerName": name},
        "hardwareProfile": {"vmSize": "Standard_D2as_v5"},
    }


@pytest.mark.parametrize("used", [SUBNET_ID, id_of("VirtualNetwork", VNET)])
def test_a_subnet_with_a_network_interface_is_not_deleted(azure: Azure, used: str) -> None:
    make_interface(azure)
    with pytest.raises(AzureError, match="InUseSubnetCannotBeDeleted"):
        azure.delete(used)
    azure.delete(NIC_ID)
    azure.delete(used)
    assert used not in azure.resources()


def test_a_network_interface_of_a_vm_is_not_deleted(azure: Azure) -> None:
    make_interface(azure)
    make(azure, "VirtualMachine", vm("head"))
    with pytest.raises(AzureError, match="NicInUse"):
        azure.delete(NIC_ID)


def test_the_interfaces_of_a_deleted_scale_set_linger(azure: Azure) -> None:
    make(azure, "VirtualMachineScaleSet", WORKERS)
    azure.delete(WORKERS_ID)
    assert WORKERS_ID not in azure.resources()
    with pytest.raises(AzureError, match="InUseSubnetCannotBeDeleted"):
        azure.delete(SUBNET_ID)


def test_interfaces_that_linger_are_gone_after_a_while(
    azure: Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holds, "INTERFACE_LINGERS_S", 0.0)
    make(azure, "VirtualMachineScaleSet", WORKERS)
    azure.delete(WORKERS_ID)
    azure.delete(SUBNET_ID)
    assert SUBNET_ID not in azure.resources()


def test_a_group_is_deleted_when_nothing_lingers_in_it(
    azure: Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    now = time.time()
    clock = SimpleNamespace(time=lambda: now + len(waits), sleep=waits.append)
    for module in ("resources.azure_stand_in", "resources.state_file"):
        monkeypatch.setattr(f"rehearsal.azure.{module}.time", clock)
    make(azure, "VirtualMachineScaleSet", WORKERS)
    azure.delete(WORKERS_ID)
    azure.delete(id_of("ResourceGroup", GROUP))
    assert azure.resources() == {}
    assert waits


def test_after_a_failed_creation_the_interface_is_reserved_for_that_vm(azure: Azure) -> None:
    make_interface(azure)
    azure.refused = {"VirtualMachine": ArmError("SkuNotAvailable", "no capacity")}
    with pytest.raises(AzureError, match="no capacity"):
        make(azure, "VirtualMachine", vm("head"))
    azure.refused = {}
    with pytest.raises(AzureError, match="NicReservedForAnotherVm"):
        make(azure, "VirtualMachine", vm("other"))
    assert make(azure, "VirtualMachine", vm("head")) in azure.resources()


@pytest.mark.parametrize(
    ("kind", "inputs", "code"),
    [
        ("BlobContainer", CONTAINER, "ContainerBeingDeleted"),
        ("StorageAccount", ACCOUNT, "StorageAccountAlreadyTaken"),
    ],
)
def test_a_deleted_name_is_refused_for_a_while(
    azure: Azure, monkeypatch: pytest.MonkeyPatch, kind: str, inputs: Properties, code: str
) -> None:
    azure.delete(make(azure, kind, inputs))
    with pytest.raises(AzureError, match=code):
        make(azure, kind, inputs)
    later = time.time() + 3600
    clock = SimpleNamespace(time=lambda: later)
    monkeypatch.setattr("rehearsal.azure.resources.state_file.time", clock)
    make(azure, kind, inputs)
