"""Ids and names are as Azure and its provider give them."""

from __future__ import annotations

import pytest

from rehearsal.azure.resource_kinds import (
    SUBSCRIPTION,
    UnknownTypeError,
    changed_paths,
    chosen_name,
    common_outputs,
    kind_of,
    replaces,
    resource_id,
)

SUBNET = kind_of("azure-native:network:Subnet")
ROLE = kind_of("azure-native:authorization:RoleAssignment")


def test_an_id_contains_those_of_what_it_is_in() -> None:
    inputs = {"resourceGroupName": "g", "virtualNetworkName": "v", "subnetName": "head"}
    assert resource_id(SUBNET, inputs) == (
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g"
        "/providers/Microsoft.Network/virtualNetworks/v/subnets/head"
    )


def test_a_role_assignment_is_in_its_scope() -> None:
    inputs = {"scope": "/subscriptions/s/resourceGroups/g", "roleAssignmentName": "r"}
    assert resource_id(ROLE, inputs) == (
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Authorization/roleAssignments/r"
    )


def test_another_seed_chooses_another_name() -> None:
    group = kind_of("azure-native:resources:ResourceGroup")
    first, again, other = (
        chosen_name(group, "dev", "urn:of:dev", seed) for seed in (b"1", b"1", b"2")
    )
    assert first == again != other
    assert first.startswith("dev")
    assert len(first) == len("dev") + 8


def test_a_subnet_is_named_as_in_the_program() -> None:
    assert chosen_name(SUBNET, "head", "urn:of:head", b"1") == "head"


def test_what_is_in_the_id_or_fixed_at_creation_replaces() -> None:
    assert replaces(SUBNET, ["addressPrefix", "virtualNetworkName"]) == ["virtualNetworkName"]
    assert replaces(ROLE, ["description", "principalId"]) == ["principalId"]


def test_a_change_is_told_by_its_innermost_path() -> None:
    old = {"customData": "a", "ssh": {"keys": ["k"]}}
    new = {"customData": "b", "ssh": {"keys": ["k", "l"]}}
    paths = ["osProfile.customData", "osProfile.ssh.keys"]
    assert list(changed_paths("osProfile", old, new)) == paths


def test_identities_are_answered_as_keys() -> None:
    identity = {"type": "UserAssigned", "userAssignedIdentities": ["/one"]}
    assert common_outputs("/g/vm-1", {"identity": identity}) == {
        "name": "vm-1",
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {"/one": {}}},
    }


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(UnknownTypeError, match="azure-native:quantum:Workspace"):
        kind_of("azure-native:quantum:Workspace")
