"""Checks the login's rights before anything is created; Azure refuses resource by resource.

https://learn.microsoft.com/rest/api/authorization/permissions
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import pulumi

from infra.config.quota import listed
from infra.config.stack_settings import StackSettings

PERMISSIONS = "/providers/Microsoft.Authorization/permissions?api-version=2022-04-01"
ASSIGN_ROLES = "Microsoft.Authorization/roleAssignments/write"
ASSIGN_IDENTITY = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
MACHINES = (
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Compute/virtualMachines/runCommands/write",
    "Microsoft.Compute/virtualMachineScaleSets/write",
    "Microsoft.Insights/autoscaleSettings/write",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkSecurityGroups/write",
    "Microsoft.Network/publicIPAddresses/write",
)
OWN_NETWORK = (
    "Microsoft.Network/natGateways/write",
    "Microsoft.Network/virtualNetworks/write",
)
JOIN = (
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.Network/virtualNetworks/subnets/joinViaServiceEndpoint/action",
)
DIAGNOSTICS = (
    "Microsoft.Insights/dataCollectionEndpoints/write",
    "Microsoft.Insights/dataCollectionRules/write",
    "Microsoft.Insights/diagnosticSettings/write",
)
WORKSPACE = (
    "Microsoft.OperationalInsights/workspaces/read",
    "Microsoft.OperationalInsights/workspaces/sharedKeys/action",
)
"""The rights on a workspace without which Azure sends no metrics to it:
https://github.com/MicrosoftDocs/azure-docs/issues/80159"""
CONNECT_ACCOUNT = "Microsoft.Storage/storageAccounts/privateEndpointConnectionsApproval/action"
CONTAINERS = "Microsoft.Storage/storageAccounts/blobServices/containers/write"
RESULTS = (
    "Microsoft.Storage/storageAccounts/write",
    "Microsoft.Storage/storageAccounts/managementPolicies/write",
    CONTAINERS,
)


class RightsError(pulumi.RunError):
    """The login lacks rights that the stack needs."""


@dataclass(frozen=True)
class Needed:
    """Actions that `up` performs within a scope."""

    scope: str
    """The resource id of a resource, a group below the subscription, or "" for all of it."""
    actions: tuple[str, ...]


def check_rights(settings: StackSettings) -> None:
    """Compares what the login may do with what the stack needs; warns if Azure does not show it.

    Raises:
        RightsError: Names each missing action, with its scope.
    """
    try:
        missing = [
            f"{needed.scope or 'the subscription'}: {', '.join(lacking)}"
            for needed in needed_rights(settings)
            if (lacking := list(not_allowed(needed.actions, listed(needed.scope + PERMISSIONS))))
        ]
    except Exception as error:  # Azure may not answer, as for the quota.
        pulumi.log.warn(f"The login's rights were not checked: {error}")
        return
    if missing:
        lines = "\n".join(f"  {line}" for line in missing)
        raise RightsError(
            f"The login lacks rights; nothing was created.\n{lines}\n"
            "Contributor includes all of these except role assignment; Role Based Access Control "
            "Administrator has that: docs/azure.md, Prerequisites."
        )


def needed_rights(settings: StackSettings) -> Iterator[Needed]:
    """Yields what `up` does, by scope."""
    identities = [
        identity
        for identity in (
            settings.head_identity_id,
            settings.mlflow_identity_id,
            settings.workers_identity_id,
        )
        if identity
    ]
    assign = () if identities else (ASSIGN_ROLES,)
    assign_scaling = assign if settings.has_autoscaler else ()
    cluster = (*MACHINES, *assign)
    if not identities:
        cluster += ("Microsoft.ManagedIdentity/userAssignedIdentities/write",)
    if not settings.head_subnet_id:
        cluster += OWN_NETWORK
    connect = (CONNECT_ACCOUNT,) if settings.has_private_endpoint else ()
    if connect:
        cluster += ("Microsoft.Network/privateEndpoints/write",)
    if not settings.resource_group:
        cluster += ("Microsoft.Resources/subscriptions/resourceGroups/write",)
    if settings.contact_emails:
        cluster += ("Microsoft.Consumption/budgets/write",)
    if settings.log_analytics_workspace_id:
        cluster += DIAGNOSTICS
        yield Needed(settings.log_analytics_workspace_id, WORKSPACE)
    yield Needed(_group(settings.resource_group), cluster)
    if settings.results_account_id:
        yield Needed(settings.results_account_id, (CONTAINERS, *connect, *assign))
    else:
        group = _group(settings.results_resource_group)
        yield Needed(group, (*RESULTS, *connect, *assign))
    yield from (Needed(identity, (ASSIGN_IDENTITY,)) for identity in identities)
    if settings.head_subnet_id:
        yield Needed(settings.head_subnet_id, JOIN)
        yield Needed(settings.worker_subnet_id, (*JOIN, *assign_scaling))
    if settings.image.startswith("/") and assign_scaling:
        yield Needed(settings.image.partition("/versions/")[0], assign_scaling)
    if settings.container_registry_id and assign:
        yield Needed(settings.container_registry_id, assign)


def _group(name: str) -> str:
    return f"/resourceGroups/{name}" if name else ""


def not_allowed(actions: Iterable[str], permissions: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yields the actions that no role of the login allows."""
    allowing = list(permissions)
    for action in actions:
        if not any(
            _matches(action, role["actions"]) and not _matches(action, role["notActions"])
            for role in allowing
        ):
            yield action


def _matches(action: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)
