"""What every resource of the cluster has in common: names, place and tags."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.config.settings import StackSettings

MAX_PREFIX = 40
"""A machine's name has 64 characters, a container's 63: enough for what follows the prefix."""


@dataclass(frozen=True)
class Common:
    """Passed to every component."""

    prefix: str
    """Of every name in the portal, "volley-dev"; Azure's resources get a suffix of eight digits."""
    location: str
    tags: dict[str, str]
    group: pulumi.Output[str]
    """Name of the resource group that dies with the stack."""

    def name(self, what: str) -> str:
        return f"{self.prefix}-{what}"

    @property
    def tagged(self) -> dict[str, Any]:
        """Arguments of every resource that has a place and tags, wherever its group."""
        return {"location": self.location, "tags": self.tags}

    @property
    def in_group(self) -> dict[str, Any]:
        """The same within the group that dies with the stack."""
        return {"resource_group_name": self.group, **self.tagged}


def resource_prefix(project: str, stack: str) -> str:
    """Returns what every resource may start with: "volley-my-stack" of the stack My_Stack.

    Containers take nothing but lower-case letters, digits and single hyphens.
    """
    plain = re.sub("[^a-z0-9]+", "-", f"{project}-{stack}".lower())
    return plain[:MAX_PREFIX].strip("-")


def tags(settings: StackSettings) -> dict[str, str]:
    """Returns what helps to find, to own and to pay for a resource."""
    found = {
        "project": pulumi.get_project(),
        "stack": pulumi.get_stack(),
        "owner": settings.owner,
        "cost-centre": settings.cost_centre,
    }
    return {key: value for key, value in found.items() if value}
