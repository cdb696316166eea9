"""Azure's errors, in the words in which azure-native passes them on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ArmError:
    """An error of Azure Resource Manager, as azure-native shows it: without target and details.

    https://learn.microsoft.com/azure/azure-resource-manager/management/resource-manager-error
    pulumi-azure-native, provider/pkg/azure/client_azcore.go: PulumiAzcoreResponseError
    """

    code: str
    message: str
    status: int = 409
    target: str = ""
    details: tuple[ArmError, ...] = ()

    def __str__(self) -> str:
        return f'Status={self.status} Code="{self.code}" Message="{self.message}"'


class AzureError(Exception):
    """Azure refused; nothing was made or changed."""


class HalfMadeError(Exception):
    """A resource exists but did not come up; the next `up` updates it."""

    def __init__(self, reason: str, added: dict[str, Any]) -> None:
        super().__init__(reason)
        self.added = added
        """The properties that create or update would have returned."""


def not_found(resource_id: str) -> ArmError:
    """Returns the answer to a GET of a resource that does not exist."""
    message = f"The Resource '{resource_id.partition('/providers/')[2]}' was not found."
    return ArmError("ResourceNotFound", message, 404)
