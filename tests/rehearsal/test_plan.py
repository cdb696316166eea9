"""From what is declared to what has to be there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rehearsal.plan import Plan, Record, free_address, free_public_address, plan
from tests.infra.stack import REQUIRED, declare_stack

HEAD, FIRST_WORKER = "10.42.0.4", "10.42.1.4"
PUBLIC = "198.51.100.20"


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    """The dev stack with three workers, as it is once Azure has answered."""
    declared = declare_stack(maxWorkers="3")
    found = {r.id: Record(r.type, r.inputs, {}) for r in declared.resources}
    for key, record in found.items():
        added: dict[str, Any] = {}
        if record.kind == "PublicIPAddress":
            added = {"ipAddress": PUBLIC if "head" in key else "198.51.100.21"}
        if record.kind == "NetworkInterface":
            (configuration,) = record.inputs["ipConfigurations"]
            added = {"ipConfigurations": [{**configuration, "privateIPAddress": HEAD}]}
        if record.kind == "UserAssignedIdentity":
            added = {"clientId": f"client of {key}", "principalId": f"principal of {key}"}
        found[key] = replace(record, inputs=named(key, record), outputs=added)
    return found


def named(key: str, record: Record) -> dict[str, Any]:
    """The inputs with the name that the provider chooses."""
    names = {
        "StorageAccount": "accountName",
        "NetworkSecurityGroup": "networkSecurityGroupName",
        "BlobContainer": "containerName",
        "VirtualMachineScaleSet": "vmScaleSetName",
    }
    name = names.get(record.kind)
    return {name: key.rpartition("/")[2], **record.inputs} if name else dict(record.inputs)


@pytest.fixture
def planned(records: dict[str, Record]) -> Plan:
    return plan(records)


def test_a_scale_set_of_three_is_three_machines_beside_the_head(planned: Plan) -> None:
    assert [m.name for m in planned.machines] == ["head", "worker0", "worker1", "worker2"]


def test_workers_have_the_first_addresses_of_their_subnet(planned: Plan) -> None:
    workers = [machine.address for machine in planned.machines if machine.name != "head"]
    assert workers == ["10.42.1.4", "10.42.1.5", "10.42.1.6"]


def test_a_machine_boots_with_its_own_custom_data(planned: Plan) -> None:
    roles = {m.name: "ray-head.service" in m.user_data for m in planned.machines}
    assert roles == {"head": True, "worker0": False, "worker1": False, "worker2": False}


def test_only_the_head_has_a_public_address(planned: Plan) -> None:
    public = {card.owner: card.public_address for card in planned.cards if card.public_address}
    assert public == {"head": PUBLIC}


def test_an_nsg_protects_the_machines_of_its_subnet(planned: Plan) -> None:
    members = {nsg.name.rpartition("-dev-")[2]: nsg.members for nsg in planned.nsgs}
    assert members == {
        "head-nsg": (HEAD,),
        "workers-nsg": ("10.42.1.4", "10.42.1.5", "10.42.1.6"),
    }


def test_the_results_account_lets_in_the_subnets_and_the_administrator(planned: Plan) -> None:
    ((_, let_in),) = planned.accounts.items()
    admin = REQUIRED["adminCidr"].removesuffix("/32")
    assert set(let_in) == {"10.42.0.0/24", "10.42.1.0/24", admin}


def test_a_subnet_without_service_endpoint_does_not_reach_the_account(
    records: dict[str, Record],
) -> None:
    changed = {
        key: replace(record, inputs={**record.inputs, "serviceEndpoints": []})
        if record.kind == "Subnet"
        else record
        for key, record in records.items()
    }
    ((_, let_in),) = plan(changed).accounts.items()
    assert set(let_in) == {REQUIRED["adminCidr"].removesuffix("/32")}


def test_a_machine_has_the_identity_of_its_role_and_no_other(planned: Plan) -> None:
    identities = {name: list(known.identities) for name, known in planned.instances.items()}
    assert ["head" in one for (one,) in identities.values()] == [True, False, False, False]


def test_a_new_interface_gets_an_address_that_nobody_has(records: dict[str, Record]) -> None:
    subnet = next(
        key for key, r in records.items() if r.inputs.get("addressPrefix") == "10.42.1.0/24"
    )
    assert free_address(records, subnet) == "10.42.1.7"


def test_a_new_public_address_is_one_that_nobody_has(records: dict[str, Record]) -> None:
    assert free_public_address(records) == "198.51.100.1"
