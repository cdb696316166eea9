"""What this machine needs for the existing resources."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from rehearsal.azure.metadata import metadata_documents
from rehearsal.azure.resources.resource_kinds import Resource, all_of
from rehearsal.azure.resources.scale_set_machines import machines_of, with_machines
from rehearsal.host_plan import Plan, plan
from tests.infra.declared_stack import (
    EXISTING_ACCOUNT,
    EXISTING_CIDRS,
    EXISTING_SUBNETS,
    GROUP,
    REQUIRED,
    declare_stack,
)


@pytest.fixture(scope="module")
def resources() -> dict[str, Resource]:
    """The dev stack with three workers."""
    return {
        key: resource
        for key, resource in declare_stack(maxWorkers="3").azure.items()
        if "/theirs/" not in key
    }


@pytest.fixture(scope="module")
def second_life() -> Plan:
    """A plan in existing subnets, with an account whose firewall allows a deleted subnet."""
    account = {
        "accountName": "oldresults",
        "networkRuleSet": {
            "defaultAction": "Deny",
            "virtualNetworkRules": [{"virtualNetworkResourceId": "/gone/subnets/head"}],
        },
    }
    account_id = EXISTING_ACCOUNT["resultsAccountId"]
    declared = declare_stack(**EXISTING_SUBNETS, **EXISTING_ACCOUNT, maxWorkers="1")
    return plan({**declared.azure, account_id: Resource("StorageAccount", account, {})})


@pytest.fixture
def planned(resources: dict[str, Resource]) -> Plan:
    return plan(resources)


def test_a_scale_set_of_three_is_three_machines_beside_the_head(planned: Plan) -> None:
    assert list(planned.machines) == ["head", "worker0", "worker1", "worker2"]


def test_the_metadata_service_tells_the_head_its_id_in_azure(
    planned: Plan, resources: dict[str, Resource]
) -> None:
    (head_id,) = all_of(resources, "VirtualMachine")
    compute = metadata_documents.instance(planned.instances["head"])["compute"]
    assert compute["resourceId"] == head_id


def test_workers_have_the_first_addresses_of_their_subnet(planned: Plan) -> None:
    workers = [spec.address for name, spec in planned.machines.items() if name != "head"]
    assert workers == ["10.42.1.4", "10.42.1.5", "10.42.1.6"]


def test_a_machine_boots_with_its_own_custom_data(planned: Plan) -> None:
    unit = "path: /etc/systemd/system/ray-head.service"
    roles = {name: unit in spec.user_data for name, spec in planned.machines.items()}
    assert roles == {"head": True, "worker0": False, "worker1": False, "worker2": False}


def test_only_the_head_has_a_public_address(planned: Plan) -> None:
    assert list(planned.public_addresses) == ["head"]


def test_an_nsg_protects_the_machines_of_its_subnet(planned: Plan) -> None:
    head, workers = sorted(nsg.members for nsg in planned.nsgs)
    assert head == ("10.42.0.4",)
    assert workers == ("10.42.1.4", "10.42.1.5", "10.42.1.6")


def test_the_results_account_lets_in_the_subnets_and_the_administrator(planned: Plan) -> None:
    (account,) = planned.accounts.values()
    admin = REQUIRED["adminCidr"].removesuffix("/32")
    assert set(account.let_in) == {"10.42.0.0/24", "10.42.1.0/24", admin}


def test_a_subnet_without_service_endpoint_does_not_reach_the_account(
    resources: dict[str, Resource],
) -> None:
    changed = {
        key: replace(resource, inputs={**resource.inputs, "serviceEndpoints": []})
        if resource.kind == "Subnet"
        else resource
        for key, resource in resources.items()
    }
    (account,) = plan(changed).accounts.values()
    assert set(account.let_in) == {REQUIRED["adminCidr"].removesuffix("/32")}


def test_a_machine_has_the_identities_of_its_role_and_no_other(planned: Plan) -> None:
    identities = [
        sorted(identity.resource_id.rpartition("-")[2] for identity in instance.identities.values())
        for instance in planned.instances.values()
    ]
    assert identities == [["head", "mlflow"], *[["workers"]] * 3]


def test_a_machine_that_the_account_lets_in_finds_it_by_its_public_name(planned: Plan) -> None:
    assert (
        planned.public_accounts("head") == planned.public_accounts("worker0") == [*planned.accounts]
    )


def test_a_machine_that_no_account_lets_in_finds_none_by_its_public_name(
    second_life: Plan,
) -> None:
    assert list(second_life.accounts) == ["oldresults"]
    assert second_life.public_accounts("head") == second_life.public_accounts("worker0") == []


def test_the_head_s_bridge_answers_to_the_private_endpoint_and_the_other_does_not(
    second_life: Plan,
) -> None:
    head, worker = (second_life.machines[name].bridge for name in ("head", "worker0"))
    (endpoint,) = second_life.endpoints
    assert second_life.addresses(head) == {"172.16.1.1/24", f"{endpoint.address}/32"}
    assert second_life.addresses(worker) == {"172.16.2.1/24"}


def test_a_private_endpoint_has_an_address_that_no_machine_has(second_life: Plan) -> None:
    (endpoint,) = second_life.endpoints
    assert endpoint.address not in {spec.address for spec in second_life.machines.values()}
    user_data = [spec.user_data for spec in second_life.machines.values()]
    line = f"{endpoint.address} oldresults.blob.core.windows.net"
    assert all(line in text for text in user_data)


def test_a_bridge_keeps_its_name_when_other_subnets_go(resources: dict[str, Resource]) -> None:
    def bridges(resources: dict[str, Resource]) -> dict[str, str]:
        return {str(subnet.cidr): name for name, subnet in plan(resources).bridges.items()}

    everything = declare_stack(maxWorkers="3").azure
    assert set(EXISTING_CIDRS.values()) < set(bridges(everything))
    assert bridges(resources).items() < bridges(everything).items()


@pytest.mark.parametrize(
    ("image", "carries"),
    [("", False), (f"{GROUP}/Microsoft.Compute/images/own", True)],
    ids=["marketplace", "own"],
)
def test_an_image_of_ones_own_carries_the_python_environment(image: str, carries: bool) -> None:
    declared = declare_stack(maxWorkers="1", **({"image": image} if image else {}))
    assert [spec.has_environment for spec in plan(declared.azure).machines.values()] == [
        carries
    ] * 2


def with_worker(resources: dict[str, Resource], **changes: object) -> dict[str, Resource]:
    """Returns the resources with another state of worker0."""
    changed = dict(resources)
    for key, scale_set in all_of(resources, "VirtualMachineScaleSet").items():
        first, *rest = machines_of(scale_set, time.time())
        changed[key] = with_machines(scale_set, [replace(first, **changes), *rest])  # type: ignore[arg-type]
    return changed


@pytest.mark.parametrize(
    "changes",
    [
        {"ready": time.time() + 3600},
        {"gone": time.time() + 3600},
        {"error": "OSProvisioningTimedOut"},
        {"joins": False},
    ],
    ids=["being made", "being deleted", "failed", "never joins"],
)
def test_a_machine_that_is_not_up_is_not_there(
    resources: dict[str, Resource], changes: dict[str, object]
) -> None:
    assert list(plan(with_worker(resources, **changes)).machines) == ["head", "worker1", "worker2"]


def test_a_deallocated_machine_is_there_without_power(resources: dict[str, Resource]) -> None:
    planned = plan(with_worker(resources, deallocated=True))
    assert "worker0" in planned.machines
    assert planned.deallocated == {"worker0"}
