"""Names, location and tags of every resource."""

import re
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_azure_native import resources

from infra.config.stack_settings import StackSettings

MAX_PREFIX = 40
"""A VM's name has at most 64 characters, a container's 63; the rest is for the suffix."""


@dataclass(frozen=True)
class Naming:
    """The stack's prefix, location, tags and resource group; passed to every component."""

    prefix: str
    """Start of every name in the portal, "volley-dev"; Pulumi adds a suffix of eight digits."""
    location: str
    tags: dict[str, str]
    cluster: pulumi.Resource
    """The component that contains all others."""
    group: pulumi.Output[str]
    """The name of the cluster's resource group."""
    group_id: pulumi.Output[str]
    made: resources.ResourceGroup | None
    """The group if the stack makes it: it is deleted with the stack, and everything in it."""

    def name(self, what: str) -> str:
        return f"{self.prefix}-{what}"

    @property
    def in_cluster(self) -> pulumi.ResourceOptions:
        """Options of every component."""
        return pulumi.ResourceOptions(parent=self.cluster)

    @property
    def tagged(self) -> dict[str, Any]:
        """Arguments of every resource with a location and tags."""
        return {"location": self.location, "tags": self.tags}

    @property
    def in_group(self) -> dict[str, Any]:
        """Arguments of every resource in the cluster's group."""
        return {"resource_group_name": self.group, **self.tagged}

    def options(self, parent: pulumi.Resource, **more: Any) -> pulumi.ResourceOptions:
        """Returns the options of a resource in the group.

        `pulumi destroy` deletes the group and leaves the order to Azure, which waits where a
        network interface still lingers in a subnet.
        """
        options = {**({"deleted_with": self.made} if self.made else {}), **more}
        return pulumi.ResourceOptions(parent=parent, **options)


def naming_of(prefix: str, settings: StackSettings, cluster: pulumi.Resource) -> Naming:
    """Returns the names in a new resource group of the cluster's, or in one that exists."""
    location, tagged = settings.location, tags(settings)
    if settings.resource_group:
        group = resources.get_resource_group_output(
            resource_group_name=settings.resource_group,
            opts=pulumi.InvokeOutputOptions(parent=cluster),
        )
        return Naming(prefix, location, tagged, cluster, group.name, group.id, None)
    options = pulumi.ResourceOptions(parent=cluster)
    made = resources.ResourceGroup(prefix, location=location, tags=tagged, opts=options)
    return Naming(prefix, location, tagged, cluster, made.name, made.id, made)


def resource_prefix(cluster: str) -> str:
    """Returns the prefix of every resource: "volley-my-stack" for the cluster volley-My_Stack.

    Container names have lower-case letters, digits and single hyphens only.
    """
    plain = re.sub("[^a-z0-9]+", "-", cluster.lower())
    return plain[:MAX_PREFIX].strip("-")


def tags(settings: StackSettings) -> dict[str, str]:
    return {"project": pulumi.get_project(), "stack": pulumi.get_stack(), **settings.tags}
