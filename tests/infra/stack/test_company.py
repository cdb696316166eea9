"""A subscription in which somebody else has made the groups and identities, and allows no more."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pulumi
import pytest

from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import KINDS, all_of
from rehearsal.azure.resources.virtual_network import private_endpoints
from rehearsal.drivers.in_process import InProcess
from rehearsal.scenario.second_life import make_existing_network
from tests.infra.declared_stack import REQUIRED

pytestmark = pytest.mark.slow

GROUPS = {"resourceGroup": "team-rl", "resultsResourceGroup": "team-results"}
IDENTITIES = {
    f"{who}IdentityId": KINDS["UserAssignedIdentity"].resource_id(
        {"resourceGroupName": "team-identities", "resourceName": f"rl-{who}"}
    )
    for who in ("head", "mlflow", "workers")
}


@pytest.fixture
def azure(tmp_path: Path) -> Azure:
    """Two groups and three identities; the login may write in the two groups alone."""
    azure = Azure(tmp_path / "azure.json")
    groups = []
    for name in GROUPS.values():
        group = KINDS["ResourceGroup"].resource_id({"resourceGroupName": name})
        azure.create("azure-native:resources:ResourceGroup", group, {"resourceGroupName": name})
        groups.append(group)
    for identity in IDENTITIES.values():
        azure.create("azure-native:managedidentity:UserAssignedIdentity", identity, {})
    azure.subscription.scopes = tuple(groups)
    return azure


@pytest.fixture
def driver(azure: Azure) -> InProcess:
    return InProcess(azure)


def test_a_login_of_two_groups_is_enough(azure: Azure, driver: InProcess) -> None:
    before = set(azure.resources())
    assert "AuthorizationFailed" in driver.up(REQUIRED).error
    config = {**REQUIRED, **GROUPS}
    result = driver.up(config)
    assert not result.error
    assert result.outputs["resourceGroup"] == "team-rl"
    assert driver.up(config).operations == frozenset()
    (role,) = [
        assignment.inputs["scope"]
        for assignment in all_of(azure.resources(), "RoleAssignment").values()
        if assignment.inputs["description"].startswith("Creates and deletes workers")
    ]
    assert role.endswith("/resourceGroups/team-rl")
    driver.destroy()
    kept = set(azure.resources()) - before
    assert {azure.resources()[one].kind for one in kept} >= {"StorageAccount", "BlobContainer"}
    assert all("/resourceGroups/team-results/" in one for one in kept)
    assert before <= set(azure.resources())


def test_identities_that_exist_get_no_role_and_what_they_need_is_told(
    azure: Azure, driver: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    azure.subscription.may_assign_roles = False
    lines: list[str] = []
    monkeypatch.setattr(pulumi.log, "info", lines.append)
    config = {**REQUIRED, **GROUPS, **IDENTITIES}
    assert "AuthorizationFailed" in driver.up({**REQUIRED, **GROUPS}).error
    result = driver.up(config)
    assert not result.error
    assert all_of(azure.resources(), "RoleAssignment") == {}
    (head,) = all_of(azure.resources(), "VirtualMachine").values()
    assert set(head.inputs["identity"]["userAssignedIdentities"]) == {
        IDENTITIES["headIdentityId"],
        IDENTITIES["mlflowIdentityId"],
    }
    assert (
        "headIdentityId needs Virtual Machine Contributor on the cluster's resource group. "
        "Creates and deletes workers: root on all machines of this group, no others"
    ) in lines
    assert (
        len([line for line in lines if re.match(r"workersIdentityId needs .+ Reader on", line)])
        == 2
    )


def test_what_policies_require_can_be_declared(azure: Azure, driver: InProcess) -> None:
    scopes, azure.subscription.scopes = azure.subscription.scopes, ()  # Others make the network.
    network = make_existing_network(azure)
    azure.subscription.scopes = (*scopes, network.worker_subnet)  # The head gets a role on it.
    azure.subscription.required_tags = ("costCenter",)
    azure.subscription.denied_kinds = ("PublicIPAddress",)
    azure.subscription.private_accounts = True
    subnets = {"headSubnetId": network.head_subnet, "workerSubnetId": network.worker_subnet}
    config = {**REQUIRED, **GROUPS, **subnets, "publicIp": "false", "tags": '{"costCenter": "rl"}'}
    assert "Storage accounts should disable public network access" in driver.up(config).error
    result = driver.up({**config, "resultsPublicAccess": "false"})
    assert not result.error
    (account,) = all_of(azure.resources(), "StorageAccount").values()
    assert account.inputs["networkRuleSet"]["virtualNetworkRules"] == []
    (endpoint,) = private_endpoints(azure.resources())
    assert endpoint.subnet.resource_id == network.head_subnet
    (head,) = all_of(azure.resources(), "VirtualMachine").values()
    boot = base64.b64decode(head.inputs["osProfile"]["customData"]).decode()
    assert endpoint.address in boot
