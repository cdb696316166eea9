"""The types of resources that a stack declares: their ids, names and replacing changes.

They follow the azure-native provider.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from infra.up.pending_operations import RESOURCE_IDS, names_of, resource_id

Properties = dict[str, Any]

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
"""The stack's subscription."""


@dataclass(frozen=True)
class Resource:
    kind: str
    """The last part of its type, "VirtualMachine"."""
    inputs: Properties
    added: Properties
    """Properties that Azure has added: name, addresses, principals."""
    instance_view: Properties = field(default_factory=dict)
    """The current state inside, which Azure returns only on request."""


Resources = Mapping[str, Resource]
"""By resource id, the oldest first."""


@dataclass(frozen=True)
class Kind:
    type: str
    """The last part of its type, "VirtualMachine"."""
    chosen: Literal["random", "same", "uuid"] = "random"
    """The name that the provider chooses by default: the program's name with eight digits, the
    program's name, or a UUID."""
    replaced_by: frozenset[str] = frozenset()
    """Inputs whose change replaces the resource, besides the names in its id."""

    @property
    def parameters(self) -> list[str]:
        """The inputs that are in its id."""
        return names_of(self.type)

    @property
    def name(self) -> str:
        """The input for its name."""
        return self.parameters[-1]

    def choose_name(self, name: str, urn: str, random_seed: bytes) -> str:
        """Returns the name that the provider chooses for a resource called `name` in the program.

        The same name, URN and seed give the same name again.
        """
        digits = hashlib.sha256(random_seed + urn.encode()).hexdigest()
        names = {"random": name + digits[:8], "same": name, "uuid": str(uuid.UUID(digits[:32]))}
        return names[self.chosen]

    def resource_id(self, inputs: Properties, subscription: str = SUBSCRIPTION) -> str:
        """Returns the id that Azure gives; all names must be in the inputs."""
        return resource_id(self.type, inputs, subscription)

    def replaces(self, changed: Iterable[str]) -> list[str]:
        return [key for key in changed if key in {*self.parameters, *self.replaced_by}]


class UnknownTypeError(Exception):
    """A type of resource that is not in KINDS."""


def short_type(type_token: str) -> str:
    """Returns "Subnet" of "azure-native:network:Subnet"."""
    return type_token.rpartition(":")[2]


def kind_of(type_token: str) -> Kind:
    name = short_type(type_token)
    if name not in KINDS:
        raise UnknownTypeError(f"the stand-in has no resource {type_token}")
    return KINDS[name]


def all_of(resources: Resources, kind: str) -> dict[str, Resource]:
    return {key: resource for key, resource in resources.items() if resource.kind == kind}


NAMED_AS_DECLARED = ("Subnet", "BlobContainer", "VirtualMachineRunCommandByVirtualMachine")
KINDS = {
    **{kind: Kind(kind) for kind in RESOURCE_IDS},
    **{kind: Kind(kind, "same") for kind in NAMED_AS_DECLARED},
    "RoleAssignment": Kind(
        "RoleAssignment", "uuid", frozenset({"principalId", "roleDefinitionId"})
    ),
}
"""By the short type."""
