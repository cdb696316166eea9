"""Sizes and prices are Azure's where it answers, and those of the dated files where it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from email.message import Message
from functools import partial
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime import MockCallArgs, MockResourceArgs, Mocks

from infra.config import quota, retail_prices
from infra.config.ask_azure import ask_azure
from infra.config.cost import prices_from, unpriced
from infra.config.prices import prices
from infra.config.read_stack import ConfigError, read_settings
from infra.config.resource_skus import SKUS, machines
from infra.config.stack_settings import StackSettings
from infra.config.vm_sizes import SIZES, Machine
from infra.stack.ray_cluster import RayCluster
from rehearsal.azure.resources import resource_skus
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import SUBSCRIPTION
from rehearsal.drivers.in_process import InProcess
from tests.infra.config.test_update_prices import vm
from tests.infra.declared_stack import REQUIRED
from tests.local_server import json_server
from tests.project import ROOT

PREFIX = "volley-dev"
ask = partial(ask_azure, prefix=PREFIX)
LISTED = machines(resource_skus.listed("eastus", {}))
Read = Callable[..., StackSettings]


class Servers:
    """Azure's two addresses, and what they answer."""

    def __init__(self, azure: Azure) -> None:
        self.azure = azure
        self.status = 200
        self.vm_prices: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.machines: dict[str, dict[str, str]] = {}
        """Names and sizes of the VMs that exist, by resource group."""

    def management(self, url: str, headers: Message) -> tuple[int, Any]:
        assert headers["Authorization"] == "Bearer of nobody"
        path = url.removeprefix(f"/subscriptions/{SUBSCRIPTION}")
        if path == quota.GROUPS:
            return 200, {"value": [{"name": name} for name in self.machines]}
        for group, vms in self.machines.items():
            if path == quota.MACHINES.format(group):
                return 200, {"value": [vm_of(*one) for one in vms.items()]}
        location = next(name for name in ("eastus", "westeurope") if path == SKUS.format(name))
        return self.status, {
            "value": resource_skus.listed(location, self.azure.subscription.restricted)
        }

    def prices(self, url: str, _: Message) -> tuple[int, Any]:
        self.asked.append(url)
        asked = [item for item in self.vm_prices if f"%27{item['armSkuName']}%27" in url]
        return 200, {"Items": asked, "NextPageLink": None}


def vm_of(name: str, size: str) -> dict[str, Any]:
    return {"name": name, "properties": {"hardwareProfile": {"vmSize": size}}}


def answers(servers: Servers) -> Mocks:
    """Returns an engine that knows the login and creates nothing."""

    class Answers(Mocks):
        def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
            raise AssertionError(args.name)

        def call(self, args: MockCallArgs) -> Any:
            return servers.azure.invoke(args.token, dict(args.args))

    return Answers()


@pytest.fixture
def servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    made = Servers(Azure(tmp_path / "azure.json"))
    with ExitStack() as stack:
        management = stack.enter_context(json_server(made.management))
        address = stack.enter_context(json_server(made.prices))
        monkeypatch.setattr(quota, "MANAGEMENT", management)
        monkeypatch.setattr(retail_prices, "ADDRESS", address)
        yield made


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the program logs."""
    lines: list[str] = []
    for level in ("info", "warn"):
        monkeypatch.setattr(pulumi.log, level, lines.append)
    return lines


@pytest.fixture
def read(servers: Servers) -> Read:
    """Reads a configuration as the program does, before anything is created."""

    def reading(**config: str) -> StackSettings:
        async def program() -> StackSettings:
            pulumi.runtime.set_mocks(answers(servers))
            return read_settings({**REQUIRED, **config}, ROOT, ask)

        return asyncio.run(program())

    return reading


# What an answer says


def test_the_stand_ins_list_has_the_sizes_of_the_file_as_they_are() -> None:
    for size, machine in SIZES.items():
        assert LISTED[size] == machine.model_copy(update={"zones": frozenset("123")})


def test_disks_are_no_sizes() -> None:
    assert "Premium_LRS" not in LISTED


def test_nvme_is_read_from_the_controller_and_the_placements() -> None:
    machine = LISTED["Standard_D128ds_v6"]
    assert (machine.nvme_only, machine.placement, machine.local_disk_gib) == (
        True,
        "NvmeDisk",
        7040,
    )
    assert machine.fits_os_disk(1024)
    assert not machine.fits_os_disk(2048)


@pytest.mark.parametrize(
    ("size", "differs"),
    [
        ("Standard_F16s_v2", {"vcpus": 16, "local_disk_gib": 128, "placement": "ResourceDisk"}),
        ("Standard_B1s", {"spot": False, "accelerated_networking": False}),
        ("Standard_D16plds_v5", {"arm": True}),
        ("Standard_A0", {"gen2": False, "encryption_at_host": False, "local_disk_gib": 0}),
    ],
)
def test_what_a_size_lacks_is_read(size: str, differs: dict[str, Any]) -> None:
    assert LISTED[size].model_dump(include=set(differs)) == differs


def test_restrictions_are_of_the_location_or_of_zones() -> None:
    found = machines(
        resource_skus.listed("eastus", {"Standard_D2as_v5": (), "Standard_D4as_v5": ("1", "3")})
    )
    assert found["Standard_D2as_v5"].restricted
    assert not found["Standard_D4as_v5"].restricted
    assert found["Standard_D4as_v5"].restricted_zones == {"1", "3"}


def test_fields_that_are_null_or_new_are_no_error() -> None:
    sku: dict[str, Any] = {
        **{"name": "Standard_X", "resourceType": "virtualMachines", "family": None, "new": {}},
        **{"locationInfo": [{"location": "eastus", "zones": None}], "restrictions": None},
        "capabilities": [
            {"name": "vCPUs", "value": "8"},
            {"name": "vCPUsAvailable", "value": "4"},
            {"name": "MemoryGB", "value": "3.5"},
        ],
    }
    machine = machines([sku])["Standard_X"]
    assert (machine.vcpus, machine.memory_gib, machine.zones) == (4, 3.5, frozenset())


def test_a_size_without_figures_is_left_out() -> None:
    sku = {"name": "Standard_H16r", "resourceType": "virtualMachines", "capabilities": []}
    assert not machines([sku])


# What the program does with it


@pytest.mark.slow
def test_any_size_of_the_location_is_taken(read: Read, servers: Servers) -> None:
    servers.vm_prices = [vm("Standard_F16s_v2", 0.7), vm("Standard_F16s_v2", 0.1, " Spot")]
    settings = read(workerSize="f16s_V2")
    assert settings.worker == LISTED["Standard_F16s_v2"]
    assert settings.has_ephemeral_worker_disks is False


@pytest.mark.slow
def test_a_restricted_size_is_refused_with_every_other_problem(
    read: Read, servers: Servers
) -> None:
    servers.azure.subscription.restricted = {"Standard_D2as_v5": (), "Standard_NC4as_T4_v3": ("2",)}
    with pytest.raises(ConfigError) as error:
        read(zone="2", adminCidr="")
    keys = [problem.key for problem in error.value.problems]
    assert keys == ["adminCidr", "headSize", "workerSize"]
    assert "nothing was created" in str(error.value)
    assert "Next: pulumi config set headSize Standard_NC8as_T4_v3" in str(error.value)


@pytest.mark.slow
def test_machines_that_exist_may_be_of_a_size_that_is_restricted_since(
    read: Read, servers: Servers
) -> None:
    servers.azure.subscription.restricted = {"Standard_D2as_v5": (), "Standard_D4as_v5": ()}
    servers.machines = {
        f"{PREFIX}12345678": {f"{PREFIX}-workers_1": "Standard_D2as_v5"},
        f"{PREFIX}-results12345678": {},
        "theirs": {"head": "Standard_D4as_v5", f"{PREFIX}-head": "Standard_D4as_v5"},
    }
    assert read().worker_size == "Standard_D2as_v5"
    with pytest.raises(ConfigError, match="Standard_D4as_v5"):
        read(headSize="Standard_D4as_v5")
    assert read(headSize="Standard_D4as_v5", resourceGroup="theirs", maxWorkers="0")


@pytest.mark.slow
def test_a_cluster_of_another_program_is_checked_too(servers: Servers) -> None:
    servers.azure.subscription.restricted = {"Standard_D2as_v5": ()}

    async def program() -> None:
        pulumi.runtime.set_mocks(answers(servers))
        RayCluster("mine", StackSettings.model_validate(REQUIRED), ROOT)

    with pytest.raises(ConfigError, match=r"workerSize.* Standard_D2ads_v5"):
        asyncio.run(program())


@pytest.mark.slow
def test_where_azure_does_not_answer_the_file_is_used(
    read: Read, servers: Servers, told: list[str]
) -> None:
    servers.status = 403
    servers.azure.subscription.restricted = {"Standard_D2as_v5": ()}
    assert read().worker == SIZES["Standard_D2as_v5"]
    (line,) = told
    assert line.startswith("Azure did not list the VM sizes of eastus (HTTP Error 403: Forbidden)")


@pytest.mark.slow
def test_machines_of_the_file_are_declared_alike_whether_azure_answers_or_not(
    read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    own: Machine = SIZES["Standard_D2as_v5"].model_copy(update={"local_disk_gib": 500})
    monkeypatch.setitem(resource_skus.SKUS, own.size, resource_skus._of_file(own))
    assert not read().has_ephemeral_worker_disks


def test_without_the_check_nothing_is_asked() -> None:
    catalog = ask(StackSettings(check_quota=False))
    assert (catalog.sizes, catalog.asked, catalog.from_azure) == (SIZES, True, False)


# Prices


@pytest.mark.slow
def test_prices_of_the_file_need_no_request(read: Read, servers: Servers, told: list[str]) -> None:
    settings = read()
    assert settings.catalog.prices == prices()
    assert not servers.asked
    assert not told


@pytest.mark.slow
def test_prices_of_other_sizes_come_from_azure_and_the_preview_says_so(
    read: Read, servers: Servers, told: list[str]
) -> None:
    servers.vm_prices = [
        vm("Standard_D4as_v7", 0.2),
        vm("Standard_D2as_v5", 0.3),
        vm("Standard_D2as_v5", 0.05, " Spot"),
    ]
    settings = read(headSize="Standard_D4as_v7")
    assert settings.catalog.prices.vm_hour["Standard_D4as_v7"].regular == 0.2
    assert told == [f"Prices: eastus, {prices().as_of}; VMs: eastus, from Azure"]


@pytest.mark.slow
def test_another_location_has_its_own_prices(read: Read, servers: Servers) -> None:
    servers.vm_prices = [vm("Standard_NC4as_T4_v3", 0.6), vm("Standard_D2as_v5", 0.3)]
    settings = read(location="westeurope")
    assert settings.catalog.prices.vm_hour["Standard_NC4as_T4_v3"].regular == 0.6
    assert prices_from(settings) == (
        f"eastus, {prices().as_of}; VMs: westeurope, from Azure; "
        "without Standard_D2as_v5, Spot, whose price is unknown"
    )


@pytest.mark.slow
def test_a_price_of_another_location_is_not_taken_for_one_that_azure_does_not_list(
    read: Read, told: list[str]
) -> None:
    settings = read(location="westeurope")
    assert "Azure lists no price for Standard_D2as_v5" in told
    assert unpriced(settings) == ["Standard_NC4as_T4_v3", "Standard_D2as_v5, Spot"]


@pytest.mark.slow
def test_without_an_answer_a_price_is_unknown(
    read: Read, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retail_prices, "ADDRESS", "http://127.0.0.1:9/")
    settings = read(headSize="Standard_D4as_v7")
    assert not settings.catalog.priced_by_azure
    assert "Connection refused" in told[0]
    assert told[1].endswith("without Standard_D4as_v7, whose price is unknown")


# As Azure refuses without the check


def test_azure_refuses_a_restricted_head_after_the_network_exists(tmp_path: Path) -> None:
    azure = Azure(tmp_path / "azure.json")
    azure.subscription.restricted = {"Standard_NC4as_T4_v3": ()}
    error = InProcess(azure).up(REQUIRED).error
    assert "SkuNotAvailable" in error
    assert any(resource.kind == "NatGateway" for resource in azure.resources().values())


def test_with_restricted_workers_up_succeeds_and_none_comes(tmp_path: Path) -> None:
    azure = Azure(tmp_path / "azure.json")
    azure.subscription.restricted = {"Standard_D2as_v5": ()}
    assert not InProcess(azure).up(REQUIRED).error
