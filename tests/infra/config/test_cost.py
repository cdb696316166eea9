"""The cost of a stack, item by item."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config.cost import (
    DOWNLOADED_GB,
    RESULTS_GB,
    billed,
    cost_table,
    hourly,
    per_day,
    per_hour,
    per_up,
    prices_from,
)
from infra.config.prices import DISK_SIZES_GIB, prices
from infra.config.stack_settings import StackSettings
from infra.config.vm_sizes import SIZES
from tests.infra.declared_stack import EXISTING_ACCOUNT, EXISTING_SUBNETS, declare_stack

BILLED = {
    "VirtualMachine",
    "VirtualMachineScaleSet",
    "NatGateway",
    "PublicIPAddress",
    "PrivateEndpoint",
}
"""Types of resources that Azure bills by the hour; disks come with their machines."""


def things(**settings: object) -> list[str]:
    return [one.what for one in billed(StackSettings.model_validate(settings))]


def test_every_price_is_that_of_a_known_size_and_every_disk_has_one() -> None:
    known = prices()
    assert known.vm_hour.keys() <= SIZES.keys()
    assert set(known.premium_disk_month) == set(known.standard_disk_month) == set(DISK_SIZES_GIB)


@pytest.mark.parametrize(
    "config", [{}, {"maxWorkers": "0"}, EXISTING_ACCOUNT, EXISTING_SUBNETS], ids=str
)
def test_each_thing_that_azure_bills_is_in_the_table(config: dict[str, str]) -> None:
    stack = declare_stack(**config)
    names = {
        "VirtualMachine": "head, ",
        "VirtualMachineScaleSet": " workers, ",
        "NatGateway": "NAT gateway",
        "PublicIPAddress": "public IP addresses",
        "PrivateEndpoint": "private endpoint",
    }
    declared = {
        resource.type
        for resource in stack.resources
        if resource.type in BILLED
        # Without workers the scale set costs nothing.
        and (resource.type != "VirtualMachineScaleSet" or config.get("maxWorkers") != "0")
    }
    known = {key: config[key] for key in config}
    table = things(**known)
    assert {kind for kind, name in names.items() if any(name in one for one in table)} == declared


def test_a_spot_machine_costs_its_spot_price() -> None:
    spot, regular = (
        per_hour(StackSettings(max_workers=1, worker_spot=spot)) for spot in (True, False)
    )
    price = prices().vm_hour["Standard_D2as_v5"]
    assert price.spot is not None
    assert regular - spot == pytest.approx(price.regular - price.spot)


def test_an_ephemeral_disk_costs_nothing() -> None:
    assert any("disks of the workers" in one for one in things(max_workers=1))
    assert not any(
        "disks of the workers" in one
        for one in things(max_workers=1, worker_size="Standard_D4ads_v5")
    )


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"max_workers": 0},
        {"max_workers": 7, "worker_size": "Standard_D4ads_v5", "head_spot": True},
        {"results_account_id": EXISTING_ACCOUNT["resultsAccountId"]},
    ],
    ids=str,
)
def test_an_hour_is_the_head_each_worker_and_what_is_always_billed(config: dict[str, Any]) -> None:
    settings = StackSettings.model_validate(config)
    one = hourly(settings)
    whole = one.head + settings.max_workers * one.worker + one.asleep
    assert whole == pytest.approx(per_hour(settings))


def test_a_sleeping_head_costs_all_but_machines() -> None:
    asleep = [
        one.per_hour
        for one in billed(StackSettings(max_workers=3))
        if not one.what.startswith(("head, ", "3 workers, ", "OS disks of the workers"))
    ]
    # Two items have no hourly cost: the data that `up` downloads, and that sent to the internet.
    assert len(asleep) == 6
    assert hourly(StackSettings(max_workers=3)).asleep == pytest.approx(sum(asleep))


def test_a_worker_has_its_price_where_none_is_allowed() -> None:
    assert hourly(StackSettings(max_workers=0)).worker == hourly(StackSettings()).worker > 0


def test_each_machine_downloads_its_environment_once() -> None:
    one = per_up(StackSettings(max_workers=0))
    assert per_up(StackSettings(max_workers=4)) == pytest.approx(5 * one)


def test_storage_and_transfer_are_in_the_table_with_their_prices() -> None:
    (stored,) = (one for one in billed(StackSettings()) if "results account" in one.what)
    assert stored.per_hour * 730 == pytest.approx(RESULTS_GB * prices().blob_gb_month)
    assert any(f"then {prices().transfer_gb} a GB" in what for what in things())


def test_each_machine_takes_its_environment_through_the_private_endpoint() -> None:
    config = {"results_account_id": EXISTING_ACCOUNT["resultsAccountId"], "max_workers": 2}
    settings = StackSettings.model_validate(config)
    (data,) = (one for one in billed(settings) if "GB through the private" in one.what)
    assert data.per_up == pytest.approx(3 * DOWNLOADED_GB * prices().private_endpoint_gb)


def test_the_table_ends_with_its_sum() -> None:
    settings = StackSettings()
    *_, last = cost_table(settings).splitlines()
    assert last == f"| **all** | {per_hour(settings):.3f} | {per_up(settings):.2f} |"


def test_a_day_with_one_hour_of_training_costs_what_is_there_meanwhile() -> None:
    settings = StackSettings(max_workers=4, idle_minutes=6, sleep_after_minutes=30)
    price = hourly(settings)
    expected = 1.5 * price.head + 1.1 * 4 * price.worker + 24 * price.asleep
    assert per_day(settings) == pytest.approx(expected)


@pytest.mark.parametrize(
    "awake", [{"sleep_after_minutes": 0, "scaling": "fixed"}, {"scaling": "cpu"}], ids=str
)
def test_a_cluster_that_never_sleeps_costs_the_whole_day(awake: dict[str, Any]) -> None:
    settings = StackSettings(max_workers=4, **awake)
    assert per_day(settings) == pytest.approx(24 * per_hour(settings))


def test_a_price_that_is_unknown_is_told_and_not_guessed() -> None:
    settings = StackSettings(head_size="Standard_D4as_v7", max_workers=0)
    assert "head, Standard_D4as_v7 (price unknown)" in things(
        headSize="Standard_D4as_v7", maxWorkers=0
    )
    assert hourly(settings).head == 0
    assert prices_from(settings).endswith("; without Standard_D4as_v7, whose price is unknown")
    assert prices_from(StackSettings()) == f"{prices().location}, {prices().as_of}"
