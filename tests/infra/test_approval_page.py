"""The page for whoever approves the stack lists every right and every role that it needs."""

from __future__ import annotations

import re

import pytest

from infra.config.check_rights import needed_rights
from infra.config.stack_settings import StackSettings
from infra.stack.identity import ROLE_NAMES
from tests.documents import document
from tests.infra.declared_stack import EXISTING_SUBNETS, Declared
from tests.infra.stack.test_company import IDENTITIES

_, _BELOW = document("docs/azure.md").split("\n## For approvers\n")
PAGE = _BELOW.split("\n## ")[0]
ALL = StackSettings.model_validate(
    {
        "budget": 1,
        "contactEmails": ["me@example.com"],
        "resultsPublicAccess": False,
        "logAnalyticsWorkspaceId": "/subscriptions/s/resourceGroups/g/providers"
        "/Microsoft.OperationalInsights/workspaces/company",
        "image": "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/mine",
    }
)
NETWORK = StackSettings.model_validate({**EXISTING_SUBNETS, **IDENTITIES})


@pytest.mark.parametrize("settings", [StackSettings(), ALL, NETWORK])
def test_every_right_of_the_login_is_listed(settings: StackSettings) -> None:
    for needed in needed_rights(settings):
        for action in needed.actions:
            provider, *kinds, verb = action.split("/")
            if verb == "read":
                assert "read it" in PAGE
            elif verb == "action":  # The page has words, "join a subnet".
                assert kinds[-1].removesuffix("Approval").removesuffix("ViaServiceEndpoint") in (
                    *("join", "assign", "privateEndpointConnections", "sharedKeys"),
                )
            else:
                assert provider in PAGE
                assert f"{'/'.join(kinds)}`" in PAGE


@pytest.mark.slow
def test_every_role_of_a_machine_is_listed_with_its_reason(any_stack: Declared) -> None:
    for assignment in any_stack.all("RoleAssignment"):
        role = ROLE_NAMES[assignment.inputs["roleDefinitionId"].rpartition("/")[2]]
        reason = re.split("[:;]", assignment.inputs["description"])[0]
        (row,) = [line for line in PAGE.splitlines() if f"| {role} |" in line and reason in line]
        assert assignment.name.split("-")[2] in row.lower()
