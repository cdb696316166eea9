"""What makes and unmakes resources behind the provider, and the one that is only a file."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rehearsal.azure.resource_kinds import SUBSCRIPTION, Properties, short_type


class AzureError(Exception):
    """What Azure refuses; nothing was made or changed."""


class HalfMadeError(Exception):
    """A resource that exists and did not come up: the next `up` updates it."""

    def __init__(self, reason: str, outputs: Properties) -> None:
        super().__init__(reason)
        self.outputs = outputs
        """What create or update would have returned."""


class Cloud(Protocol):
    """Called from several threads at a time.

    `token` is the type ("azure-native:network:Subnet") or the function; `inputs` have all names
    chosen and nothing of the engine's own. Create and update return what Azure adds to the
    inputs, besides resource_kinds.common_outputs; they raise AzureError or HalfMadeError.
    """

    def create(self, token: str, resource_id: str, inputs: Properties) -> Properties: ...

    def update(
        self, token: str, resource_id: str, old: Properties, inputs: Properties
    ) -> Properties:
        """Changes what exists from the inputs `old` to `inputs`."""

    def delete(self, token: str, resource_id: str, inputs: Properties) -> None: ...

    def invoke(self, token: str, arguments: Properties) -> Properties:
        """Answers a function such as getClientConfig, or raises AzureError."""


@dataclass(frozen=True)
class FileCloud:
    """Everything exists in a file: {resource id: {"type": ..., "properties": inputs}}."""

    path: Path
    fault: str = ""
    """A short type whose creation fails when it was made."""

    @staticmethod
    def from_environment() -> FileCloud:
        """Takes path and fault from STAND_IN_CLOUD and STAND_IN_FAULT."""
        return FileCloud(Path(os.environ["STAND_IN_CLOUD"]), os.environ.get("STAND_IN_FAULT", ""))

    def create(self, token: str, resource_id: str, inputs: Properties) -> Properties:
        outputs = _invented(token, resource_id, inputs)
        with self._resources() as resources:
            if resource_id in resources:
                raise AzureError(f"cannot create already existing resource '{resource_id}'")
            resources[resource_id] = {"type": token, "properties": inputs}
        if self.fault == short_type(token):
            raise HalfMadeError(f"{resource_id} was made but did not come up", outputs)
        return outputs

    def update(
        self, token: str, resource_id: str, old: Properties, inputs: Properties
    ) -> Properties:
        with self._resources() as resources:
            resources[resource_id] = {"type": token, "properties": inputs}
        return _invented(token, resource_id, inputs)

    def delete(self, token: str, resource_id: str, inputs: Properties) -> None:
        """Deletes it with all that is in it."""
        with self._resources() as resources:
            for other in list(resources):
                if f"{other}/".startswith(f"{resource_id}/"):
                    del resources[other]

    def invoke(self, token: str, arguments: Properties) -> Properties:
        if token != "azure-native:authorization:getClientConfig":
            raise AzureError(f"the stand-in has no function {token}")
        return {"subscriptionId": SUBSCRIPTION, "clientId": "", "objectId": "", "tenantId": ""}

    @contextmanager
    def _resources(self) -> Iterator[Properties]:
        """What exists, locked meanwhile; written back unless an error is raised."""
        with self.path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            resources = json.loads(file.read() or "{}")
            yield resources
            file.truncate(0)
            file.write(json.dumps(resources, indent=1))


def _invented(token: str, resource_id: str, inputs: Properties) -> Properties:
    match short_type(token):
        case "PublicIPAddress":
            last = hashlib.sha256(resource_id.encode()).digest()[0]
            return {"ipAddress": f"20.1.2.{last}"}
        case "NetworkInterface":
            (first, *_) = inputs["ipConfigurations"]
            return {"ipConfigurations": [{**first, "privateIPAddress": "10.42.0.4"}]}
        case "PrivateEndpoint":
            return {"customDnsConfigs": [{"ipAddresses": ["10.42.0.9"]}]}
        case "UserAssignedIdentity":
            ids = {what: str(uuid.uuid5(uuid.NAMESPACE_URL, what + resource_id)) for what in "pc"}
            return {"principalId": ids["p"], "clientId": ids["c"]}
    return {}
