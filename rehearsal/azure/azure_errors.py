"""Azure's errors, worded as azure-native passes them on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rehearsal.azure.http_server import Answer


@dataclass(frozen=True)
class ArmError:
    """An error of Azure Resource Manager, as azure-native shows it: without target and details.

    https://learn.microsoft.com/azure/azure-resource-manager/management/resource-manager-error
    pulumi-azure-native, provider/pkg/azure/client_azcore.go: PulumiAzcoreResponseError
    """

    code: str
    message: str
    status: int = 409

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message}}

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


class RefusedError(Exception):
    """Azure Resource Manager refuses a request over HTTP."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.answer = Answer(status, ArmError(code, message).body, headers or {})


def refused(error: ArmError) -> RefusedError:
    return RefusedError(error.status, error.code, error.message)
