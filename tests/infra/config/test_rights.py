"""Before creating anything, `up` compares the login's rights with what it does."""

from __future__ import annotations

import pytest

from infra.config import check_rights as rights
from infra.config.check_rights import RightsError, check_rights, needed_rights, not_allowed
from infra.config.stack_settings import StackSettings
from tests.infra.declared_stack import EXISTING_ACCOUNT, EXISTING_SUBNETS
from tests.infra.stack.test_company import GROUPS, IDENTITIES

CONTRIBUTOR = {
    "actions": ["*"],
    "notActions": [
        "Microsoft.Authorization/*/Delete",
        "Microsoft.Authorization/*/Write",
        "Microsoft.Authorization/elevateAccess/Action",
    ],
}
"""https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/privileged"""
ROLE_ADMINISTRATOR = {
    "actions": ["Microsoft.Authorization/roleAssignments/write", "*/read"],
    "notActions": [],
}


def scopes(settings: StackSettings) -> dict[str, tuple[str, ...]]:
    return {needed.scope: needed.actions for needed in needed_rights(settings)}


def test_a_stack_of_its_own_needs_two_roles_in_the_subscription() -> None:
    needed = [action for need in needed_rights(StackSettings()) for action in need.actions]
    assert {need.scope for need in needed_rights(StackSettings())} == {""}
    lacking = list(not_allowed(needed, [CONTRIBUTOR]))
    assert set(lacking) == {"Microsoft.Authorization/roleAssignments/write"}
    assert not list(not_allowed(needed, [CONTRIBUTOR, ROLE_ADMINISTRATOR]))


def test_with_groups_and_identities_contributor_in_these_is_enough() -> None:
    settings = StackSettings.model_validate({**GROUPS, **IDENTITIES})
    needed = scopes(settings)
    assert set(needed) == {
        "/resourceGroups/team-rl",
        "/resourceGroups/team-results",
        *IDENTITIES.values(),
    }
    for actions in needed.values():
        assert not list(not_allowed(actions, [CONTRIBUTOR]))


def test_what_exists_is_used_and_not_made() -> None:
    settings = StackSettings.model_validate({**EXISTING_SUBNETS, **EXISTING_ACCOUNT})
    needed = scopes(settings)
    assert set(needed) == {"", *EXISTING_SUBNETS.values(), *EXISTING_ACCOUNT.values()}
    assert not any("virtualNetworks/write" in action for action in needed[""])


def test_each_missing_right_is_told_with_its_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"/resourceGroups/team-rl": [CONTRIBUTOR], "/resourceGroups/team-results": []}
    monkeypatch.setattr(
        rights, "listed", lambda path: answers[path.removesuffix(rights.PERMISSIONS)]
    )
    with pytest.raises(RightsError) as error:
        check_rights(StackSettings.model_validate(GROUPS))
    lines = str(error.value).splitlines()
    assert lines[1] == "  /resourceGroups/team-rl: Microsoft.Authorization/roleAssignments/write"
    assert lines[2].startswith("  /resourceGroups/team-results: Microsoft.Storage/storageAccounts/")
