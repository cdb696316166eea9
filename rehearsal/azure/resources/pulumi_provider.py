"""The provider: answers Pulumi's engine in place of azure-native.

It behaves like azure-native wherever the engine notices: automatic names, replacing changes,
creating a resource that exists, creating one that fails half made.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import grpc
from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental import server
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.proto import provider_pb2, status_pb2

from rehearsal.azure.azure_errors import HalfMadeError
from rehearsal.azure.resources.azure_stand_in import CHANGED_BY_AZURE, Azure
from rehearsal.azure.resources.property_changes import changes, inputs_after_read
from rehearsal.azure.resources.resource_kinds import SUBSCRIPTION, Properties, Resource, kind_of
from rehearsal.azure.resources.returned_properties import answered

PropertyValues = Mapping[str, PropertyValue]
VERSION = metadata.version("pulumi-azure-native")


def serve(azure: Azure) -> None:
    """Answers the engine that started this program, until the engine ends it."""
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    server.ProviderServicer = Servicer  # type: ignore[misc]
    server.main(sys.argv[1:], VERSION, Provider(azure))


class Provider(api.Provider):
    """A provider of a program. Azure's calls block, so each runs in its own thread."""

    def __init__(self, azure: Azure) -> None:
        self._azure = azure
        self._subscription = SUBSCRIPTION

    async def configure(self, request: api.ConfigureRequest) -> api.ConfigureResponse:
        self._subscription = plain(request.args).get("subscriptionId", SUBSCRIPTION)
        return api.ConfigureResponse(
            accept_secrets=True, supports_preview=True, accept_resources=True, accept_outputs=False
        )

    async def check(self, request: api.CheckRequest) -> api.CheckResponse:
        kind, inputs = kind_of(_token(request.type)), dict(request.new_inputs)
        if kind.name not in inputs:
            inputs[kind.name] = request.old_inputs.get(kind.name) or PropertyValue(
                kind.choose_name(request.name, request.urn, request.random_seed)
            )
            if kind.chosen != "same":
                inputs["__createBeforeDelete"] = PropertyValue(True)
        return api.CheckResponse(inputs=inputs, failures=[])

    async def diff(self, request: api.DiffRequest) -> api.DiffResponse:
        # The library omits the old inputs from its requests.
        old_inputs = PropertyValue.unmarshal_map(_MESSAGE.get().old_inputs)
        changed = changes(plain(old_inputs), plain(request.new_inputs))
        replaced_by = kind_of(_token(request.type)).replaces(changed)
        update, replace = api.PropertyDiffKind.UPDATE, api.PropertyDiffKind.UPDATE_REPLACE
        details = {
            path: api.PropertyDiff(replace if key in replaced_by else update, input_diff=True)
            for key, paths in changed.items()
            for path in paths
        }
        return api.DiffResponse(
            changes=bool(changed),
            replaces=replaced_by,
            delete_before_replace=bool(replaced_by) and "__createBeforeDelete" not in old_inputs,
            diffs=list(changed),
            detailed_diff=details,
        )

    async def create(self, request: api.CreateRequest) -> api.CreateResponse:
        if request.preview:  # A preview cannot know what Azure changes.
            known = without(request.properties, *CHANGED_BY_AZURE)
            return api.CreateResponse(properties=known)
        token, inputs = _token(request.type), plain(request.properties)
        made = kind_of(token).resource_id(inputs, self._subscription)
        state = await _state(
            token, made, request.properties, lambda: self._azure.create(token, made, inputs)
        )
        return api.CreateResponse(resource_id=made, properties=state)

    async def read(self, request: api.ReadRequest) -> api.ReadResponse:
        resources = await asyncio.to_thread(self._azure.resources)
        if request.resource_id not in resources:
            return api.ReadResponse()
        resource = resources[request.resource_id]
        answer = answered(request.resource_id, resource, resources, settled=True)
        inputs = resource.inputs
        if request.inputs:  # Otherwise the resource is being imported.
            before = plain(request.inputs), plain(request.properties)
            inputs = inputs_after_read(*before, answer)
        return api.ReadResponse(request.resource_id, wrapped(answer), wrapped(inputs))

    async def update(self, request: api.UpdateRequest) -> api.UpdateResponse:
        if request.preview:
            known = without(request.news, *CHANGED_BY_AZURE)
            return api.UpdateResponse(properties={**request.olds, **known})
        changed, inputs = request.resource_id, plain(request.news)
        token = _token(request.type)
        state = await _state(
            token, changed, request.news, lambda: self._azure.update(changed, inputs)
        )
        return api.UpdateResponse(properties=state)

    async def delete(self, request: api.DeleteRequest) -> None:
        await asyncio.to_thread(self._azure.delete, request.resource_id)

    async def invoke(self, request: api.InvokeRequest) -> api.InvokeResponse:
        answer = await asyncio.to_thread(self._azure.invoke, request.tok, plain(request.args))
        return api.InvokeResponse(wrapped(answer))


class InitFailedError(Exception):
    """A resource did not come up; carries what the engine needs to continue with it."""

    def __init__(self, reason: str, failure: provider_pb2.ErrorResourceInitFailed) -> None:
        super().__init__(reason)
        status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=reason)
        status.details.add().Pack(failure)
        self.metadata = (("grpc-status-details-bin", status.SerializeToString()),)


async def _state(
    token: str, resource_id: str, inputs: PropertyValues, call: Callable[[], Properties]
) -> dict[str, PropertyValue]:
    """Makes or changes a resource; returns Azure's answer for it."""

    def answer(added: Properties) -> dict[str, PropertyValue]:
        made = Resource(kind_of(token).type, plain(inputs), added)
        return wrapped(answered(resource_id, made, {}, settled=False))

    try:
        return answer(await asyncio.to_thread(call))
    except HalfMadeError as error:
        failure = provider_pb2.ErrorResourceInitFailed(
            id=resource_id,
            reasons=[str(error)],
            properties=PropertyValue.marshal_map(answer(error.added)),
            inputs=PropertyValue.marshal_map(dict(inputs)),
        )
        raise InitFailedError(str(error), failure) from None


def _token(urn_type: str) -> str:
    """Returns a URN's type without its parents' types, which precede it with "$"."""
    return urn_type.rpartition("$")[2]


_MESSAGE: contextvars.ContextVar[Any] = contextvars.ContextVar("message")


def _with_azures_errors(name: str) -> Any:
    """Returns a method of the library's servicer that reports Azure's own errors."""
    library = getattr(server.ProviderServicer, name)

    async def method(self: Servicer, message: Any, context: Any) -> Any:
        _MESSAGE.set(message)
        try:
            return await library(self, message, context)
        except Exception as raised:
            error = raised.__context__ or raised  # The library wraps it, with its traceback.
            details = error.metadata if isinstance(error, InitFailedError) else ()
            await context.abort(grpc.StatusCode.UNKNOWN, str(error), details)

    return method


class Servicer(server.ProviderServicer):
    """The library's servicer, which also keeps the message and reports Azure's own errors."""

    Check = _with_azures_errors("Check")
    Diff = _with_azures_errors("Diff")
    Create = _with_azures_errors("Create")
    Update = _with_azures_errors("Update")
    Delete = _with_azures_errors("Delete")
    Invoke = _with_azures_errors("Invoke")
    Read = _with_azures_errors("Read")


def plain(values: PropertyValues) -> Properties:
    """Returns the values without the engine's own keys and without secrecy."""
    return {key: plain_value(value) for key, value in without(values).items()}


def wrapped(values: Properties) -> dict[str, PropertyValue]:
    return {key: _wrapped(value) for key, value in values.items()}


def without(values: PropertyValues, *keys: str) -> dict[str, PropertyValue]:
    """Returns all but these keys and the engine's own, such as "__createBeforeDelete"."""
    return {k: v for k, v in values.items() if k not in keys and not k.startswith("__")}


def plain_value(value: Any) -> Any:
    """Returns a plain value; whole numbers, which travel as floats, become integers."""
    value = value.value if isinstance(value, PropertyValue) else value
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {key: plain_value(item) for key, item in value.items()}
    return [plain_value(item) for item in value] if isinstance(value, list | tuple) else value


def _wrapped(value: Any) -> PropertyValue:
    if isinstance(value, Mapping):
        return PropertyValue({key: _wrapped(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return PropertyValue([_wrapped(item) for item in value])
    return PropertyValue(float(value) if type(value) is int else value)
