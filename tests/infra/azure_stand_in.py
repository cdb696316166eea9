"""A provider for azure-native whose cloud is a file, for tests with Pulumi's real engine.

It behaves as the real one where the engine can tell: automatic names, what replaces what,
a create that is refused because the resource exists, one that fails when half made.

STAND_IN_CLOUD  the file: {resource id: {"type": ..., "properties": ...}}
STAND_IN_FAULT  the last part of a type whose next creation fails after it was made
"""

from __future__ import annotations

import contextvars
import fcntl
import hashlib
import json
import logging
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental import server
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.proto import provider_pb2, status_pb2

Properties = dict[str, Any]

VERSION = "3.29.0"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
GROUP = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}"
REQUEST: contextvars.ContextVar[Any] = contextvars.ContextVar("request")
"""The message as it came: the library leaves the old inputs of a diff out."""


@dataclass(frozen=True)
class Kind:
    """One type of resource."""

    path: str
    """Its id; a name in braces is an input, and a change of it replaces the resource."""
    name: str
    """The input that is chosen where the program does not."""
    chosen: str = "random"
    """How: "random" (name and eight digits), "same" (as in the program) or "uuid"."""
    replaced_by: frozenset[str] = frozenset()
    outputs: Callable[[str, Properties], Properties] = lambda _id, _inputs: {}

    @property
    def parameters(self) -> list[str]:
        return [name for name in re.findall(r"{(\w+)}", self.path) if name != "subscriptionId"]


def _kind(path: str, name: str, **options: Any) -> Kind:
    return Kind(f"{GROUP}/providers/Microsoft.{path}/{{{name}}}", name, **options)


def _address(resource_id: str, _: Properties) -> Properties:
    return {"ipAddress": f"20.1.2.{hashlib.sha256(resource_id.encode()).digest()[0]}"}


def _private_address(_: str, inputs: Properties) -> Properties:
    (first, *_rest) = inputs["ipConfigurations"]
    return {"ipConfigurations": [{**first, "privateIPAddress": "10.42.0.4"}]}


def _endpoint_address(_: str, __: Properties) -> Properties:
    return {"customDnsConfigs": [{"ipAddresses": ["10.42.0.9"]}]}


def _principal(resource_id: str, _: Properties) -> Properties:
    ids = {what: str(uuid.uuid5(uuid.NAMESPACE_URL, what + resource_id)) for what in ("p", "c")}
    return {"principalId": ids["p"], "clientId": ids["c"]}


def _identities(_: str, inputs: Properties) -> Properties:
    identity = inputs["identity"]
    known: Properties = {key: {} for key in identity["userAssignedIdentities"]}
    return {"identity": {**identity, "userAssignedIdentities": known}}


_VNET = "Network/virtualNetworks/{virtualNetworkName}"
_ACCOUNT = "Storage/storageAccounts/{accountName}"
KINDS = {
    "ResourceGroup": Kind(GROUP, "resourceGroupName"),
    "VirtualNetwork": _kind("Network/virtualNetworks", "virtualNetworkName"),
    "Subnet": _kind(f"{_VNET}/subnets", "subnetName", chosen="same"),
    "NetworkSecurityGroup": _kind("Network/networkSecurityGroups", "networkSecurityGroupName"),
    "NatGateway": _kind("Network/natGateways", "natGatewayName"),
    "PublicIPAddress": _kind("Network/publicIPAddresses", "publicIpAddressName", outputs=_address),
    "NetworkInterface": _kind(
        "Network/networkInterfaces", "networkInterfaceName", outputs=_private_address
    ),
    "PrivateEndpoint": _kind(
        "Network/privateEndpoints", "privateEndpointName", outputs=_endpoint_address
    ),
    "StorageAccount": _kind("Storage/storageAccounts", "accountName"),
    "BlobContainer": _kind(
        f"{_ACCOUNT}/blobServices/default/containers", "containerName", chosen="same"
    ),
    "UserAssignedIdentity": _kind(
        "ManagedIdentity/userAssignedIdentities", "resourceName", outputs=_principal
    ),
    "RoleAssignment": Kind(
        "/{scope}/providers/Microsoft.Authorization/roleAssignments/{roleAssignmentName}",
        "roleAssignmentName",
        chosen="uuid",
        replaced_by=frozenset({"principalId", "roleDefinitionId"}),
    ),
    "VirtualMachine": _kind("Compute/virtualMachines", "vmName", outputs=_identities),
    "VirtualMachineScaleSet": _kind(
        "Compute/virtualMachineScaleSets", "vmScaleSetName", outputs=_identities
    ),
    "VirtualMachineRunCommandByVirtualMachine": _kind(
        "Compute/virtualMachines/{vmName}/runCommands", "runCommandName", chosen="same"
    ),
}


class AzureError(Exception):
    """What Azure refuses; nothing was made."""


class HalfMadeError(Exception):
    """A resource that exists and did not come up."""

    def __init__(self, resource_id: str, inputs: Any, outputs: Any) -> None:
        super().__init__(f"{resource_id} was made but did not come up")
        self.resource_id, self.inputs, self.outputs = resource_id, inputs, outputs


@contextmanager
def cloud() -> Iterator[Properties]:
    """The file with everything that exists, locked meanwhile."""
    with open(os.environ["STAND_IN_CLOUD"], "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        resources = json.loads(file.read() or "{}")
        yield resources
        file.truncate(0)
        file.write(json.dumps(resources, indent=1))


class StandIn(api.Provider):
    async def configure(self, request: Any) -> Any:
        return api.ConfigureResponse(
            accept_secrets=True, supports_preview=True, accept_resources=True, accept_outputs=False
        )

    async def check(self, request: Any) -> Any:
        kind, inputs = kind_of(request), dict(request.new_inputs)
        if kind.name not in inputs:
            digits = hashlib.sha256(request.random_seed + request.urn.encode()).hexdigest()
            inputs[kind.name] = request.old_inputs.get(kind.name) or PropertyValue(
                {
                    "random": request.name + digits[:8],
                    "same": request.name,
                    "uuid": str(uuid.UUID(digits[:32])),
                }[kind.chosen]
            )
            if kind.chosen != "same":
                inputs["__createBeforeDelete"] = PropertyValue(True)
        return api.CheckResponse(inputs=inputs, failures=[])

    async def diff(self, request: Any) -> Any:
        kind = kind_of(request)
        old = PropertyValue.unmarshal_map(REQUEST.get().old_inputs)
        new = request.new_inputs
        changed = [
            key
            for key in sorted({*old, *new})
            if not key.startswith("__") and plain(old.get(key)) != plain(new.get(key))
        ]
        replaces = [key for key in changed if key in {*kind.parameters, *kind.replaced_by}]
        details = {
            path: api.PropertyDiff(
                api.PropertyDiffKind.UPDATE_REPLACE
                if key in replaces
                else api.PropertyDiffKind.UPDATE,
                input_diff=True,
            )
            for key in changed
            for path in changed_paths(key, plain(old.get(key)), plain(new.get(key)))
        }
        return api.DiffResponse(
            changes=bool(changed),
            replaces=replaces,
            delete_before_replace=bool(replaces) and "__createBeforeDelete" not in old,
            diffs=changed,
            detailed_diff=details,
        )

    async def create(self, request: Any) -> Any:
        kind, inputs = kind_of(request), request.properties
        if request.preview:  # An output that is left out is not known yet.
            return api.CreateResponse(properties=without(inputs, "identity", "ipConfigurations"))
        values = {key: plain(value) for key, value in inputs.items()}
        resource_id = kind.path.format(
            subscriptionId=SUBSCRIPTION,
            **{name: str(values[name]).strip("/") for name in kind.parameters},
        )
        outputs = outputs_of(kind, resource_id, inputs)
        with cloud() as resources:
            if resource_id in resources:
                raise AzureError(f"cannot create already existing resource '{resource_id}'")
            resources[resource_id] = {"type": request.type, "properties": values}
        if os.environ.get("STAND_IN_FAULT") == request.type.split(":")[-1]:
            raise HalfMadeError(resource_id, inputs, outputs)
        return api.CreateResponse(resource_id=resource_id, properties=outputs)

    async def update(self, request: Any) -> Any:
        kind, inputs = kind_of(request), request.news
        if request.preview:
            kept = without(inputs, "identity", "ipConfigurations")
            return api.UpdateResponse(properties={**request.olds, **kept})
        values = {key: plain(value) for key, value in inputs.items()}
        with cloud() as resources:
            resources[request.resource_id] = {"type": request.type, "properties": values}
        return api.UpdateResponse(properties=outputs_of(kind, request.resource_id, inputs))

    async def delete(self, request: Any) -> Any:
        with cloud() as resources:
            for resource_id in list(resources):
                if f"{resource_id}/".startswith(f"{request.resource_id}/"):
                    del resources[resource_id]

    async def invoke(self, request: Any) -> Any:
        if request.tok != "azure-native:authorization:getClientConfig":
            raise AzureError(f"the stand-in has no function {request.tok}")
        answer = {"subscriptionId": SUBSCRIPTION, "clientId": "", "objectId": "", "tenantId": ""}
        return api.InvokeResponse({key: PropertyValue(value) for key, value in answer.items()})


def changed_paths(path: str, old: Any, new: Any) -> Iterator[str]:
    """Yields "osProfile.customData", as the real provider: replace_on_changes names such paths."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield path
        return
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            yield from changed_paths(f"{path}.{key}", old.get(key), new.get(key))


def kind_of(request: Any) -> Kind:
    name = request.type.split(":")[-1]
    if name not in KINDS:
        raise AzureError(f"the stand-in has no resource {request.type}")
    return KINDS[name]


def outputs_of(kind: Kind, resource_id: str, inputs: Any) -> dict[str, PropertyValue]:
    values = {key: plain(value) for key, value in inputs.items()}
    more = {"name": resource_id.rpartition("/")[2], **kind.outputs(resource_id, values)}
    return {**without(inputs), **{key: wrapped(value) for key, value in more.items()}}


def without(inputs: Any, *keys: str) -> dict[str, PropertyValue]:
    return {k: v for k, v in inputs.items() if k not in keys and not k.startswith("__")}


def plain(value: Any) -> Any:
    """Returns a property's value; whole numbers, which travel as floats, are integers."""
    value = value.value if isinstance(value, PropertyValue) else value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if hasattr(value, "items"):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def wrapped(value: Any) -> PropertyValue:
    if isinstance(value, dict):
        return PropertyValue({key: wrapped(item) for key, item in value.items()})
    if isinstance(value, list):
        return PropertyValue([wrapped(item) for item in value])
    return PropertyValue(float(value) if type(value) is int else value)


class Servicer(server.ProviderServicer):
    """The library's, but a diff sees the old inputs, and errors are what Azure says."""


def _told(name: str) -> Any:
    library = getattr(server.ProviderServicer, name)

    async def method(self: Servicer, request: Any, context: Any) -> Any:
        REQUEST.set(request)
        try:
            return await library(self, request, context)
        except Exception as raised:
            error = raised.__context__ or raised  # The library wraps it, with its traceback.
            if isinstance(error, HalfMadeError):
                await context.abort(grpc.StatusCode.UNKNOWN, str(error), _half_made(error))
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))

    return method


def _half_made(error: HalfMadeError) -> tuple[tuple[str, bytes], ...]:
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(error))
    status.details.add().Pack(
        provider_pb2.ErrorResourceInitFailed(
            id=error.resource_id,
            reasons=[str(error)],
            properties=PropertyValue.marshal_map(error.outputs),
            inputs=PropertyValue.marshal_map(error.inputs),
        )
    )
    return (("grpc-status-details-bin", status.SerializeToString()),)


for _name in ("Check", "Diff", "Create", "Update", "Delete", "Invoke"):
    setattr(Servicer, _name, _told(_name))


if __name__ == "__main__":
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    server.ProviderServicer = Servicer  # type: ignore[misc]
    server.main(sys.argv[1:], VERSION, StandIn())
