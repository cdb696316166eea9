"""The actions that an identity may perform on a resource, and from when on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infra.stack.identity import BLOB_DATA_CONTRIBUTOR, BLOB_DATA_READER
from rehearsal.azure.azure_errors import AzureError
from rehearsal.azure.blob.blob_proxy import Access, needed_action
from rehearsal.azure.metadata.managed_identity import access_token
from rehearsal.azure.metadata.metadata_state import Identity
from rehearsal.azure.resources import roles
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import KINDS, Properties
from rehearsal.azure.resources.roles import (
    BLOBS,
    CONTAINERS,
    RoleAssignment,
    is_allowed,
    role_assignments,
)

NOW = 1000.0
CONTAINER = "/account/blobServices/default/containers/results"
READER = RoleAssignment("reader", BLOB_DATA_READER, CONTAINER, NOW)
READ, WRITE = f"{BLOBS}/read", f"{BLOBS}/write"
DECLARED: Properties = {
    "scope": CONTAINER,
    "roleAssignmentName": "some",
    "principalId": "reader",
    "principalType": "ServicePrincipal",
    "roleDefinitionId": f"/subscriptions/s/providers/x/roleDefinitions/{BLOB_DATA_READER}",
}


@pytest.mark.parametrize(
    ("changed", "action", "where", "allowed"),
    [
        ({}, READ, CONTAINER, True),
        ({}, WRITE, CONTAINER, False),
        ({}, READ, f"{CONTAINER}2", False),
        ({"scope": "/account"}, READ, CONTAINER, True),
        ({"scope": CONTAINER.upper()}, READ, CONTAINER, True),
        ({"principal_id": "other"}, READ, CONTAINER, False),
        ({"role": BLOB_DATA_CONTRIBUTOR}, WRITE, CONTAINER, True),
        ({"effective": NOW + 1}, READ, CONTAINER, False),
    ],
)
def test_an_assignment_allows_its_role_to_its_principal_in_its_scope(
    changed: Properties, action: str, where: str, allowed: bool
) -> None:
    assignment = replace(READER, **changed)
    assert is_allowed([assignment], "reader", action, where, NOW) == allowed


@pytest.mark.parametrize(
    ("method", "query", "action"),
    [
        ("GET", {}, READ),
        ("HEAD", {}, READ),
        ("PUT", {}, WRITE),
        ("PUT", {"comp": "blocklist"}, WRITE),
        ("DELETE", {}, f"{BLOBS}/delete"),
        ("GET", {"restype": "container", "comp": "list"}, READ),
        ("GET", {"comp": "list"}, f"{CONTAINERS}/read"),
        ("PUT", {"restype": "container"}, f"{CONTAINERS}/write"),
        ("DELETE", {"restype": "container"}, f"{CONTAINERS}/delete"),
        ("POST", {"comp": "userdelegationkey", "restype": "service"}, roles.DELEGATION_KEY),
        ("POST", {"comp": "batch"}, None),
    ],
)
def test_each_operation_needs_one_permission(
    method: str, query: dict[str, str], action: str | None
) -> None:
    assert needed_action(method, query) == action


@pytest.mark.parametrize("authorization", ["", "Bearer ", "Bearer a.b.c", "SharedKey a:b"])
def test_a_request_without_a_token_is_refused(authorization: str) -> None:
    access = Access({"results": "/account"}, (replace(READER, principal_id=""),))
    host = "results.blob.core.windows.net"
    assert not access.allows("GET", host, "/results/a", authorization, NOW)


def test_a_request_is_looked_up_by_account_and_container() -> None:
    access = Access({"results": "/account"}, (READER,))
    token = access_token("https://storage.azure.com", "client", Identity("reader"), int(NOW))

    def allowed(account: str, url: str) -> bool:
        host = f"{account}.blob.core.windows.net"
        return access.allows("GET", host, url, f"Bearer {token}", NOW)

    assert allowed("results", "/results/a/b?timeout=1")
    assert allowed("results", "/results?restype=container&comp=list")
    assert not allowed("results", "/other/a")
    assert not allowed("another", "/results/a")


@pytest.fixture
def azure(tmp_path: Path) -> Azure:
    return Azure(tmp_path / "azure.json")


def assign(azure: Azure, inputs: Properties) -> None:
    resource_id = KINDS["RoleAssignment"].resource_id(inputs)
    azure.create("azure-native:authorization:RoleAssignment", resource_id, inputs)


def test_an_assignment_takes_effect_after_a_while(azure: Azure) -> None:
    assign(azure, DECLARED)
    (assignment,) = role_assignments(azure.resources())
    made = assignment.effective - roles.ROLE_DELAY_S
    assert not assignment.allows("reader", READ, CONTAINER, made + roles.ROLE_DELAY_S - 1)
    assert assignment.allows("reader", READ, CONTAINER, made + roles.ROLE_DELAY_S)


@pytest.mark.parametrize(
    ("inputs", "code"),
    [
        ({**DECLARED, "roleDefinitionId": "/roleDefinitions/none"}, "RoleDefinitionDoesNotExist"),
        ({k: v for k, v in DECLARED.items() if k != "principalType"}, "PrincipalNotFound"),
    ],
)
def test_an_assignment_that_azure_cannot_make_is_refused(
    azure: Azure, inputs: Properties, code: str
) -> None:
    with pytest.raises(AzureError, match=code):
        assign(azure, inputs)
    assert not azure.resources()
