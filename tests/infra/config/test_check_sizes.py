"""Sizes that the subscription cannot have, or the cluster cannot use, are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config.catalog import Catalog
from infra.config.check_sizes import check_sizes, nearest_size
from infra.config.stack_settings import StackSettings
from infra.config.vm_sizes import SIZES, Machine

ZONES = frozenset("123")


def settings(config: dict[str, Any], *others: Machine, **changed: dict[str, Any]) -> StackSettings:
    """Returns settings with Azure's sizes: those of the file, some changed, and others."""
    sizes = {
        size: machine.model_copy(update={"zones": ZONES, **changed.get(size, {})})
        for size, machine in SIZES.items()
    }
    sizes |= {machine.size: machine for machine in others}
    catalog = Catalog(sizes=sizes, asked=True, from_azure=True)
    return StackSettings.model_validate(config).with_catalog(catalog)


def lines(config: dict[str, Any], *others: Machine, **changed: dict[str, Any]) -> list[str]:
    return [str(problem) for problem in check_sizes(settings(config, *others, **changed))]


def test_sizes_without_restrictions_are_taken() -> None:
    assert not lines({"zone": "2"})


def test_a_restricted_size_is_refused_with_the_nearest_one_that_is_allowed() -> None:
    restricted = {size: {"restricted": True} for size in ("Standard_D2as_v5", "Standard_D2ads_v5")}
    assert lines({}, **restricted) == [
        'workerSize: "Standard_D2as_v5": is not available to this subscription in eastus. '
        "Next: pulumi config set workerSize Standard_D2ads_v6"
    ]


def test_each_other_size_of_the_workers_is_like_the_first_and_allowed() -> None:
    others = ["Standard_D2s_v5", "Standard_D4as_v5", "Standard_D2ads_v5", "Standard_D2s_v5"]
    assert lines({"otherWorkerSizes": others[:1]}) == []
    differs = "differs from workerSize Standard_D2as_v5 in"
    assert lines({"otherWorkerSizes": others[1:3]}) == [
        f'otherWorkerSizes: "{others[1]}": {differs} vCPUs, which all workers must share',
        f'otherWorkerSizes: "{others[2]}": {differs} a local disk, which all workers must share',
    ]
    restricted = {others[0]: {"restricted": True}}
    (line,) = lines({"otherWorkerSizes": others[:1]}, **restricted)
    assert "is not available to this subscription" in line
    assert lines({"otherWorkerSizes": [others[0]] * 5}) != []


def test_of_several_zones_one_is_enough_for_the_workers() -> None:
    only = {"Standard_D2as_v5": {"restricted_zones": frozenset("1")}}
    assert lines({"workerZones": ["1", "2"]}, **only) == []
    (line,) = lines({"workerZones": ["1"]}, **only)
    assert "is not available to this subscription in zone 1 of eastus" in line


def test_a_size_that_no_machine_uses_may_be_restricted() -> None:
    assert not lines({"max_workers": 0}, Standard_D2as_v5={"restricted": True})


def test_the_nearest_size_of_a_gpu_has_one() -> None:
    (line,) = lines({}, Standard_NC4as_T4_v3={"restricted": True})
    assert line.endswith("headSize Standard_NC8as_T4_v3")


def test_of_sizes_alike_one_of_the_dated_file_is_nearest() -> None:
    burstable = Machine(size="Standard_B2as_v2", vcpus=2, memory_gib=8, quota_family="B")
    stack = settings({}, burstable)
    assert nearest_size(stack, burstable, spot=False) == "Standard_D2ads_v5"


def test_where_no_size_is_allowed_another_location_is_named() -> None:
    restricted = {size: {"restricted": True} for size in SIZES}
    refused = lines({}, **restricted)
    assert len(refused) == 2
    assert all("use another location" in line for line in refused)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"zones": frozenset("13")}, "is not in zone 2 of eastus, only in 1, 3"),
        ({"zones": frozenset()}, "is not in zone 2 of eastus, nor in another zone"),
        ({"restricted_zones": frozenset("2")}, "not available to this subscription in zone 2 of"),
        ({"spot": False}, "has no Spot VMs"),
        ({"encryption_at_host": False}, "does not support encryption at host"),
        ({"arm": True}, "has Arm CPUs"),
        ({"gen2": False}, "does not support Gen2 images"),
        ({"gpus": 1}, "has GPUs that the image's driver or the lock's torch does not support"),
    ],
)
def test_what_the_cluster_cannot_use_is_refused(changed: dict[str, Any], words: str) -> None:
    (line,) = lines({"zone": "2"}, Standard_D2as_v5=changed)
    assert words in line


def test_without_a_zone_restrictions_of_zones_do_not_matter() -> None:
    assert not lines({}, Standard_D2as_v5={"restricted_zones": ZONES, "zones": frozenset()})


def test_a_size_without_spot_is_taken_at_the_regular_price() -> None:
    (line,) = lines({}, Standard_D2as_v5={"spot": False})
    assert line.endswith("workerSize Standard_D2ads_v5 or workerSpot false")
    assert not lines({"worker_spot": False}, Standard_D2as_v5={"spot": False})


def test_a_size_that_the_location_lacks_is_named_with_the_most_similar_name() -> None:
    (line,) = lines({"worker_size": "Standard_D2as_v9"})
    assert "is not a size of eastus (did you mean Standard_D2as_v" in line


def test_any_size_of_azure_is_taken_however_it_is_spelt() -> None:
    other = Machine(size="Standard_F4s_v2", vcpus=4, memory_gib=8, quota_family="standardFSv2")
    stack = settings({"worker_size": "f4S_v2"}, other)
    assert not list(check_sizes(stack))
    assert stack.worker == other
