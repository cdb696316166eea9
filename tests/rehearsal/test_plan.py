"""What must be on this machine for the resources that exist."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rehearsal.azure.resource_kinds import Resource
from rehearsal.plan import Plan, plan
from tests.infra.stack import REQUIRED, declare_stack


@pytest.fixture(scope="module")
def resources() -> dict[str, Resource]:
    """The dev stack with three workers."""
    return {
        key: resource
        for key, resource in declare_stack(maxWorkers="3").azure.items()
        if "/theirs/" not in key
    }


@pytest.fixture
def planned(resources: dict[str, Resource]) -> Plan:
    return plan(resources)


def test_a_scale_set_of_three_is_three_machines_beside_the_head(planned: Plan) -> None:
    assert list(planned.machines) == ["head", "worker0", "worker1", "worker2"]


def test_workers_have_the_first_addresses_of_their_subnet(planned: Plan) -> None:
    workers = [one.address for name, one in planned.machines.items() if name != "head"]
    assert workers == ["10.42.1.4", "10.42.1.5", "10.42.1.6"]


def test_a_machine_boots_with_its_own_custom_data(planned: Plan) -> None:
    roles = {name: "ray-head.service" in one.user_data for name, one in planned.machines.items()}
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
        key: replace(one, inputs={**one.inputs, "serviceEndpoints": []})
        if one.kind == "Subnet"
        else one
        for key, one in resources.items()
    }
    (account,) = plan(changed).accounts.values()
    assert set(account.let_in) == {REQUIRED["adminCidr"].removesuffix("/32")}


def test_a_machine_has_the_identity_of_its_role_and_no_other(planned: Plan) -> None:
    identities = {
        name: [identity.resource_id for identity in known.identities.values()]
        for name, known in planned.instances.items()
    }
    assert ["head" in one for (one,) in identities.values()] == [True, False, False, False]
