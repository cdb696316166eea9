"""What an existing Log Analytics workspace receives of a cluster."""

from __future__ import annotations

import re

import pytest

from infra.config.check_rights import DIAGNOSTICS, WORKSPACE, needed_rights
from infra.config.stack_settings import StackSettings
from infra.stack.diagnostics import COLUMNS, STREAM
from infra.stack.identity import LOGS_WRITER
from tests.documents import document
from tests.infra.declared_stack import WORKSPACE_ID, Declared, declare_stack

pytestmark = pytest.mark.slow

WITH_WORKSPACE = {"logAnalyticsWorkspaceId": WORKSPACE_ID}


@pytest.fixture
def stack() -> Declared:
    return declare_stack(**WITH_WORKSPACE)


def test_azure_sends_the_metrics_of_the_head_and_the_workers(stack: Declared) -> None:
    settings = {setting.name: setting.inputs for setting in stack.all("DiagnosticSetting")}
    resources = [stack.resource(kind).id for kind in ("VirtualMachine", "VirtualMachineScaleSet")]
    assert sorted(inputs["resourceUri"] for inputs in settings.values()) == sorted(resources)
    for inputs in settings.values():
        assert inputs["workspaceId"] == WORKSPACE_ID
        assert inputs["metrics"] == [{"category": "AllMetrics", "enabled": True}]


def test_a_metrics_setting_is_deleted_before_its_resource(stack: Declared) -> None:
    # Azure would keep it for the next resource with this name.
    for setting in stack.all("DiagnosticSetting"):
        assert not setting.options.deletedWith


def test_the_rule_is_in_the_workspaces_region_and_writes_its_syslog(stack: Declared) -> None:
    endpoint, rule = stack.resource("DataCollectionEndpoint"), stack.one("DataCollectionRule")
    assert endpoint.inputs["location"] == rule["location"] == "westeurope"
    assert rule["dataCollectionEndpointId"] == endpoint.id
    (destination,) = rule["destinations"]["logAnalytics"]
    (flow,) = rule["dataFlows"]
    assert destination["workspaceResourceId"] == WORKSPACE_ID
    assert flow["destinations"] == [destination["name"]]
    assert (flow["streams"], flow["outputStream"]) == ([STREAM], "Microsoft-Syslog")
    columns = rule["streamDeclarations"][STREAM]["columns"]
    assert {column["name"]: column["type"] for column in columns} == COLUMNS


@pytest.mark.parametrize("machine", ["head", "worker"])
def test_every_machine_sends_its_journal_by_the_rule(stack: Declared, machine: str) -> None:
    rule = stack.resource("DataCollectionRule")
    (url,) = re.findall("JOURNALS_URL=(.*)", stack.custom_data(machine))
    endpoint = stack.resource("DataCollectionEndpoint").added["logsIngestion"]["endpoint"]
    path = f"/dataCollectionRules/{rule.added['immutableId']}/streams/{STREAM}"
    assert url.strip("'") == f"{endpoint}{path}?api-version=2023-01-01"
    assert "send-journal.timer" in stack.custom_data(machine)


def test_every_machine_may_send_by_the_rule_and_the_page_for_approval_says_so(
    stack: Declared,
) -> None:
    assignments = [
        assignment
        for assignment in stack.all("RoleAssignment")
        if assignment.inputs["roleDefinitionId"].endswith(LOGS_WRITER)
    ]
    scopes = {assignment.inputs["scope"] for assignment in assignments}
    assert scopes == {stack.resource("DataCollectionRule").id}
    identities = [stack.resource("UserAssignedIdentity", who) for who in ("head", "workers")]
    principals = {identity.added["principalId"] for identity in identities}
    assert {assignment.inputs["principalId"] for assignment in assignments} == principals
    page = document("docs/azure.md")
    assert "| head, workers | Monitoring Metrics Publisher |" in page


def test_the_login_needs_rights_for_it_alone() -> None:
    needed = list(needed_rights(StackSettings.model_validate(WITH_WORKSPACE)))
    assert {scope.scope: scope.actions for scope in needed}[WORKSPACE_ID] == WORKSPACE
    assert any(set(DIAGNOSTICS) <= set(scope.actions) for scope in needed)
    assert not any(
        set(DIAGNOSTICS) & set(scope.actions) for scope in needed_rights(StackSettings())
    )


def test_without_a_workspace_nothing_is_sent() -> None:
    stack = declare_stack()
    kinds = {resource.type for resource in stack.resources}
    assert not kinds & {"DiagnosticSetting", "DataCollectionRule", "DataCollectionEndpoint"}
    for machine in ("head", "worker"):
        assert "journal" not in stack.custom_data(machine).lower()
