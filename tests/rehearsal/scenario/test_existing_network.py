"""A second stack with kept results, in an existing network, only on the stand-in."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.refusals import CONTAINER_NAME_S
from rehearsal.azure.resources.resource_kinds import Resource, all_of
from rehearsal.azure.resources.virtual_network import subnets
from rehearsal.drivers.driver import Result
from rehearsal.drivers.in_process import InProcess
from rehearsal.scenario.second_life import make_existing_network
from rehearsal.scenario.unsupported_properties import unsupported_properties
from tests.infra.declared_stack import REQUIRED

pytestmark = pytest.mark.slow


class Lives:
    """A destroyed stack, and a second one that continues with its results."""

    def __init__(self, file: Path) -> None:
        azure = Azure(file)
        driver = InProcess(azure)
        first = driver.up({**REQUIRED, "maxWorkers": "0"})
        driver.destroy()
        network = make_existing_network(azure)
        time.sleep(CONTAINER_NAME_S)  # Wait until the deleted containers' names are free.
        self.before = azure.resources()
        self.up: Result = driver.up(
            {
                **REQUIRED,
                "maxWorkers": "1",
                "resultsAccountId": first.outputs["resultsAccountId"],
                "headSubnetId": network.head_subnet,
                "workerSubnetId": network.worker_subnet,
            }
        )
        self.declared = azure.resources()
        self.destroy = driver.destroy()
        self.after = azure.resources()

    @property
    def made(self) -> dict[str, Resource]:
        return {key: resource for key, resource in self.declared.items() if key not in self.before}


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Lives:
    return Lives(tmp_path_factory.mktemp("azure") / "azure.json")


def test_the_second_stack_makes_no_network_and_no_account(lives: Lives) -> None:
    assert not lives.up.error
    kinds = {resource.kind for resource in lives.made.values()}
    assert kinds.isdisjoint({"VirtualNetwork", "Subnet", "NatGateway", "StorageAccount"})
    assert "PrivateEndpoint" in kinds


def test_up_and_destroy_leave_what_was_there_as_it_was(lives: Lives) -> None:
    assert {key: lives.declared[key] for key in lives.before} == lives.before
    assert not lives.destroy.error
    assert lives.after == lives.before


def test_the_existing_subnets_have_a_way_out_and_neither_nsg_nor_service_endpoint(
    lives: Lives,
) -> None:
    existing = subnets(lives.before)
    assert [(subnet.has_nat, subnet.nsg_id, subnet.reaches_storage) for subnet in existing] == [
        (True, None, False)
    ] * 2


def test_a_private_endpoint_is_rehearsed(lives: Lives) -> None:
    endpoints = all_of(lives.made, "PrivateEndpoint")
    assert len(endpoints) == 1
    assert not [line for line in unsupported_properties(endpoints) if "PrivateEndpoint" in line]
