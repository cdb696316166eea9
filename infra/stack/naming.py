"""Names, location and tags of every resource."""

import re
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_azure_native.resources import ResourceGroup

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
    resource_group: ResourceGroup
    """Deleted with the stack, and everything in it."""

    def name(self, what: str) -> str:
        return f"{self.prefix}-{what}"

    @property
    def group(self) -> pulumi.Output[str]:
        """The name of the resource group that is deleted with the stack."""
        name: pulumi.Output[str] = self.resource_group.name
        return name

    @property
    def tagged(self) -> dict[str, Any]:
        """Arguments of every resource with a location and tags."""
        return {"location": self.location, "tags": self.tags}

    @property
    def in_group(self) -> dict[str, Any]:
        """Arguments of every resource in the group that is deleted with the stack."""
        return {"resource_group_name": self.group, **self.tagged}

    def options(self, parent: pulumi.Resource, **more: Any) -> pulumi.ResourceOptions:
        """Returns the options of a resource in the group.

        `pulumi destroy` deletes the group and leaves the order to Azure, which waits where a
        network interface still lingers in a subnet.
        """
        options = {"deleted_with": self.resource_group, **more}
        return pulumi.ResourceOptions(parent=parent, **options)


def stack_prefix() -> str:
    return resource_prefix(pulumi.get_project(), pulumi.get_stack())


def resource_prefix(project: str, stack: str) -> str:
    """Returns the prefix of every resource: "volley-my-stack" for the stack My_Stack.

    Container names have lower-case letters, digits and single hyphens only.
    """
    plain = re.sub("[^a-z0-9]+", "-", f"{project}-{stack}".lower())
    return plain[:MAX_PREFIX].strip("-")


def tags(settings: StackSettings) -> dict[str, str]:
    values = {
        "project": pulumi.get_project(),
        "stack": pulumi.get_stack(),
        "owner": settings.owner,
        "cost-centre": settings.cost_centre,
    }
    return {key: value for key, value in values.items() if value}


def without_type_aliases(
    args: pulumi.ResourceTransformationArgs,
) -> pulumi.ResourceTransformationResult:
    """Returns a resource as declared, without its type's names at explicit API versions.

    azure-native lists up to 60 such names a type, for states that were written by programs that
    name an API version (azure-native:network/v20230201:Subnet). No volley stack has one: the
    program declares the types without a version, whose names stay when azure-native is upgraded.
    """
    options = pulumi.ResourceOptions.merge(args.opts, None)
    options.aliases = None
    return pulumi.ResourceTransformationResult(args.props, options)
