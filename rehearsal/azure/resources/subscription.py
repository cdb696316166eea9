"""What a subscription and its policies allow the login that runs Pulumi."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from rehearsal.azure.azure_errors import ArmError
from rehearsal.azure.resources import roles
from rehearsal.azure.resources.resource_kinds import SUBSCRIPTION, Resource
from rehearsal.azure.resources.resource_skus import Restricted, sizes_of

POLICIES = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Authorization/policyAssignments"


@dataclass
class Subscription:
    """A subscription's limits; by default it allows everything."""

    restricted: Restricted = field(default_factory=dict)
    """Sizes that it cannot have, by their zones; see resource_skus.refusal."""
    scopes: tuple[str, ...] = ()
    """The resource ids within which the login may create and change resources; empty: anywhere."""
    may_assign_roles: bool = True
    required_tags: tuple[str, ...] = ()
    allowed_sizes: tuple[str, ...] = ()
    """Empty: all, as for `allowed_locations`."""
    allowed_locations: tuple[str, ...] = ()
    denied_kinds: tuple[str, ...] = ()
    """Resource types that a policy denies."""
    private_accounts: bool = False
    """Whether storage accounts must not have a public endpoint."""

    def refusal(self, resource_id: str, made: Resource) -> ArmError | None:
        """Returns why the login may not make or change a resource.

        https://learn.microsoft.com/azure/role-based-access-control/troubleshooting
        https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-policy-requestdisallowedbypolicy
        """
        inside = not self.scopes or any(
            roles.is_within(resource_id, scope) for scope in self.scopes
        )
        if not inside or (made.kind == "RoleAssignment" and not self.may_assign_roles):
            message = "The client does not have authorization to perform a write over "
            return ArmError("AuthorizationFailed", f"{message}'{resource_id}'.", 403)
        policies = [
            {"name": name, "id": f"{POLICIES}/{name.lower().replace(' ', '-')}"}
            for name in self._disallowing(made)
        ]
        if not policies:
            return None
        identifiers = [
            {"policyAssignment": policy, "policyDefinition": policy} for policy in policies
        ]
        message = (
            f"Resource '{resource_id.rpartition('/')[2]}' was disallowed by policy. "
            f"Policy identifiers: '{json.dumps(identifiers)}'."
        )
        return ArmError("RequestDisallowedByPolicy", message, 403)

    def _disallowing(self, made: Resource) -> Iterator[str]:
        """Yields the names of the policies that deny a resource: Azure's built-in ones."""
        inputs = made.inputs
        location, tags = inputs.get("location"), inputs.get("tags") or {}
        # These policies apply only to resources with a location (their mode is Indexed).
        if location and set(self.required_tags) - tags.keys():
            yield "Require a tag on resources"
        if location and self.allowed_locations and location not in self.allowed_locations:
            yield "Allowed locations"
        sizes = {(inputs.get("hardwareProfile") or {}).get("vmSize")} - {None}
        if made.kind == "VirtualMachineScaleSet":
            sizes = set(sizes_of(inputs))
        if self.allowed_sizes and sizes - set(self.allowed_sizes):
            yield "Allowed virtual machine size SKUs"
        if made.kind in self.denied_kinds:
            yield "Not allowed resource types"
        public = inputs.get("publicNetworkAccess") != "Disabled"
        if made.kind == "StorageAccount" and self.private_accounts and public:
            yield "Storage accounts should disable public network access"
