"""IDs and names follow the rules of Azure and its provider."""

from __future__ import annotations

import pytest

from rehearsal.azure.resources.resource_kinds import (
    SUBSCRIPTION,
    UnknownTypeError,
    kind_of,
)

SUBNET = kind_of("azure-native:network:Subnet")
ROLE = kind_of("azure-native:authorization:RoleAssignment")


def test_an_id_contains_those_of_what_it_is_in() -> None:
    inputs = {"resourceGroupName": "g", "virtualNetworkName": "v", "subnetName": "head"}
    assert SUBNET.resource_id(inputs) == (
        f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g"
        "/providers/Microsoft.Network/virtualNetworks/v/subnets/head"
    )


def test_a_role_assignment_is_in_its_scope() -> None:
    inputs = {"scope": "/subscriptions/s/resourceGroups/g", "roleAssignmentName": "r"}
    assert ROLE.resource_id(inputs) == (
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.Authorization/roleAssignments/r"
    )


def test_another_seed_chooses_another_name() -> None:
    group = kind_of("azure-native:resources:ResourceGroup")
    first, again, other = (
        group.choose_name("dev", "urn:of:dev", seed) for seed in (b"1", b"1", b"2")
    )
    assert first == again != other
    assert first.startswith("dev")
    assert len(first) == len("dev") + 8


def test_a_subnet_is_named_as_in_the_program() -> None:
    assert SUBNET.choose_name("head", "urn:of:head", b"1") == "head"


def test_what_is_in_the_id_or_fixed_at_creation_replaces() -> None:
    assert SUBNET.replaces(["addressPrefix", "virtualNetworkName"]) == ["virtualNetworkName"]
    assert ROLE.replaces(["description", "principalId"]) == ["principalId"]


def test_a_resource_can_be_in_another_subscription() -> None:
    group = kind_of("azure-native:resources:ResourceGroup")
    assert group.resource_id({"resourceGroupName": "g"}, "other") == (
        "/subscriptions/other/resourceGroups/g"
    )


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(UnknownTypeError, match="azure-native:quantum:Workspace"):
        kind_of("azure-native:quantum:Workspace")
