"""Role assignments: what an identity may do with a resource, and from when on.

https://learn.microsoft.com/azure/role-based-access-control/overview
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from rehearsal.azure.azure_errors import ArmError
from rehearsal.azure.resources.refusals import TIME_FACTOR
from rehearsal.azure.resources.resource_kinds import Properties, Resources, all_of

ROLE_DELAY_S = 300 / TIME_FACTOR
"""An assignment takes effect after this time; on Azure after minutes:
https://learn.microsoft.com/azure/role-based-access-control/troubleshooting"""

OWNER = "the subscription's owner"
"""The principal that runs Pulumi and may do everything."""
CONTAINERS = "Microsoft.Storage/storageAccounts/blobServices/containers"
BLOBS = f"{CONTAINERS}/blobs"
DELEGATION_KEY = "Microsoft.Storage/storageAccounts/blobServices/generateUserDelegationKey/action"
ASSIGN_IDENTITY = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
JOIN_SUBNET = "Microsoft.Network/virtualNetworks/subnets/join/action"
SEND_LOGS = "Microsoft.Insights/Telemetry/Write"
VM_CONTRIBUTOR = "9980e02c-c2be-4d73-94e8-173b1dc7cf3c"
READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
IDENTITY_OPERATOR = "f1a07417-d97a-45cb-824c-7a7467783830"
AUTOSCALE_WRITER = "3afb7f49-54cb-416e-8c09-6dc049efa503"
ROLES: dict[str, tuple[str, ...]] = {
    "ba92f5b4-2d11-453d-a403-e96b0029c9fe": (
        *(f"{CONTAINERS}/{verb}" for verb in ("read", "write", "delete")),
        *(f"{BLOBS}/{verb}" for verb in ("read", "write", "delete", "move/action", "add/action")),
        DELEGATION_KEY,
    ),
    "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1": (f"{CONTAINERS}/read", f"{BLOBS}/read", DELEGATION_KEY),
    VM_CONTRIBUTOR: (
        *(f"Microsoft.Compute/{what}/*" for what in ("virtualMachines", "locations", "disks")),
        "Microsoft.Compute/virtualMachineScaleSets/*",
        "Microsoft.Network/networkInterfaces/*",
        JOIN_SUBNET,
        "Microsoft.Network/networkSecurityGroups/join/action",
    ),
    "7f951dda-4ed3-4680-a7ca-43fe172d538d": ("Microsoft.ContainerRegistry/registries/pull/read",),
    READER: ("*/read",),
    AUTOSCALE_WRITER: ("Microsoft.Insights/autoscaleSettings/write",),
    "3913510d-42f4-4e42-8a64-420c390055eb": (SEND_LOGS,),
    IDENTITY_OPERATOR: (
        "Microsoft.ManagedIdentity/userAssignedIdentities/read",
        ASSIGN_IDENTITY,
    ),
}
"""Permissions of Storage Blob Data Contributor and Storage Blob Data Reader; of Virtual Machine
Contributor and Managed Identity Operator, those that a scale set needs; of AcrPull, Azure AI
Inference Deployment Operator and Monitoring Metrics Publisher:
https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/ai-machine-learning
https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/storage
https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/compute
https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/containers
https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/identity
https://learn.microsoft.com/azure/role-based-access-control/built-in-roles/monitor"""


@dataclass(frozen=True)
class RoleAssignment:
    """A principal's role for a resource and everything in it."""

    principal_id: str
    role: str
    """The GUID of the role's definition."""
    scope: str
    """A resource id."""
    effective: float
    """When it takes effect, in seconds since the epoch."""

    def allows(self, principal_id: str, action: str, resource_id: str, now: float) -> bool:
        return (
            self.principal_id == principal_id
            and self.effective <= now
            and any(fnmatchcase(action, allowed) for allowed in ROLES[self.role])
            and is_within(resource_id, self.scope)
        )


def is_within(resource_id: str, scope: str) -> bool:
    """Whether a resource is the scope or lies in it; Azure ignores the case of ids."""
    return f"{resource_id}/".lower().startswith(f"{scope}/".lower())


def role_assignments(resources: Resources) -> list[RoleAssignment]:
    """Returns the existing assignments, including those without effect yet."""
    return [
        RoleAssignment(
            assignment.inputs["principalId"],
            _role(assignment.inputs),
            assignment.inputs["scope"],
            datetime.fromisoformat(assignment.added["createdOn"]).timestamp() + ROLE_DELAY_S,
        )
        for assignment in all_of(resources, "RoleAssignment").values()
    ]


def is_allowed(
    assignments: Iterable[RoleAssignment],
    principal_id: str,
    action: str,
    resource_id: str,
    now: float,
) -> bool:
    return principal_id == OWNER or any(
        assignment.allows(principal_id, action, resource_id, now) for assignment in assignments
    )


def refusal(inputs: Properties) -> ArmError | None:
    """Returns why Azure does not make a role assignment.

    Without principalType it looks the principal up, which may not be replicated yet:
    https://learn.microsoft.com/azure/role-based-access-control/role-assignments-template
    """
    if _role(inputs) not in ROLES:
        return ArmError(
            "RoleDefinitionDoesNotExist",
            f"The specified role definition with ID '{_role(inputs)}' does not exist.",
            404,
        )
    if "principalType" not in inputs:
        return ArmError(
            "PrincipalNotFound",
            f"Principal {inputs['principalId']} does not exist in the directory.",
            400,
        )
    return None


def _role(inputs: Properties) -> str:
    return str(inputs["roleDefinitionId"]).rpartition("/")[2]
