"""The provider: what Pulumi's engine asks is answered as azure-native does, by a Cloud.

It behaves as the real one where the engine can tell: automatic names, what replaces what,
a create that is refused because the resource exists, one that fails when half made.
Run as a program it serves a FileCloud.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

import grpc
from pulumi.provider.experimental import provider as api
from pulumi.provider.experimental import server
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.proto import provider_pb2, status_pb2

from rehearsal.azure import resource_kinds
from rehearsal.azure.property_values import PropertyValues, plain, without, wrapped
from rehearsal.azure.resource_kinds import Properties
from rehearsal.azure.resources import Cloud, FileCloud, HalfMadeError

VERSION = metadata.version("pulumi-azure-native")
UNKNOWN_IN_PREVIEW = ("identity", "ipConfigurations")
"""Inputs of which Azure makes something else; what a preview leaves out is not known yet."""


def serve(cloud: Cloud) -> None:
    """Answers the engine that started this program, until it ends it."""
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    server.ProviderServicer = Servicer  # type: ignore[misc]
    server.main(sys.argv[1:], VERSION, Provider(cloud))


class Provider(api.Provider):
    """The cloud's calls block, so each runs in a thread of its own."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    async def configure(self, request: api.ConfigureRequest) -> api.ConfigureResponse:
        return api.ConfigureResponse(
            accept_secrets=True, supports_preview=True, accept_resources=True, accept_outputs=False
        )

    async def check(self, request: api.CheckRequest) -> api.CheckResponse:
        kind, inputs = resource_kinds.kind_of(_token(request.type)), dict(request.new_inputs)
        if kind.name not in inputs:
            inputs[kind.name] = request.old_inputs.get(kind.name) or PropertyValue(
                resource_kinds.chosen_name(kind, request.name, request.urn, request.random_seed)
            )
            if kind.chosen != "same":
                inputs["__createBeforeDelete"] = PropertyValue(True)
        return api.CheckResponse(inputs=inputs, failures=[])

    async def diff(self, request: api.DiffRequest) -> api.DiffResponse:
        kind = resource_kinds.kind_of(_token(request.type))
        old_inputs = _old_inputs()
        old, new = plain(old_inputs), plain(request.new_inputs)
        changed = resource_kinds.changed_keys(old, new)
        replaced_by = resource_kinds.replaces(kind, changed)
        update, replace = api.PropertyDiffKind.UPDATE, api.PropertyDiffKind.UPDATE_REPLACE
        details = {
            path: api.PropertyDiff(replace if key in replaced_by else update, input_diff=True)
            for key in changed
            for path in resource_kinds.changed_paths(key, old.get(key), new.get(key))
        }
        return api.DiffResponse(
            changes=bool(changed),
            replaces=replaced_by,
            delete_before_replace=bool(replaced_by) and "__createBeforeDelete" not in old_inputs,
            diffs=changed,
            detailed_diff=details,
        )

    async def create(self, request: api.CreateRequest) -> api.CreateResponse:
        if request.preview:
            return api.CreateResponse(properties=_known_in_preview(request.properties))
        token, inputs = _token(request.type), plain(request.properties)
        made = resource_kinds.resource_id(resource_kinds.kind_of(token), inputs)
        state = await _state(
            made, request.properties, lambda: self._cloud.create(token, made, inputs)
        )
        return api.CreateResponse(resource_id=made, properties=state)

    async def update(self, request: api.UpdateRequest) -> api.UpdateResponse:
        if request.preview:
            known = _known_in_preview(request.news)
            return api.UpdateResponse(properties={**request.olds, **known})
        token, changed = _token(request.type), request.resource_id
        old, inputs = plain(_old_inputs()), plain(request.news)
        state = await _state(
            changed, request.news, lambda: self._cloud.update(token, changed, old, inputs)
        )
        return api.UpdateResponse(properties=state)

    async def delete(self, request: api.DeleteRequest) -> None:
        token, inputs = _token(request.type), plain(_old_inputs())
        await asyncio.to_thread(self._cloud.delete, token, request.resource_id, inputs)

    async def invoke(self, request: api.InvokeRequest) -> api.InvokeResponse:
        answer = await asyncio.to_thread(self._cloud.invoke, request.tok, plain(request.args))
        return api.InvokeResponse(wrapped(answer))


class InitFailedError(Exception):
    """A resource that did not come up, with all that the engine needs to go on with it."""

    def __init__(
        self, reason: str, resource_id: str, inputs: PropertyValues, state: PropertyValues
    ) -> None:
        super().__init__(reason)
        self.resource_id, self.inputs, self.state = resource_id, dict(inputs), dict(state)

    def metadata(self) -> tuple[tuple[str, bytes], ...]:
        """Returns what gRPC carries beside the message."""
        status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(self))
        status.details.add().Pack(
            provider_pb2.ErrorResourceInitFailed(
                id=self.resource_id,
                reasons=[str(self)],
                properties=PropertyValue.marshal_map(self.state),
                inputs=PropertyValue.marshal_map(self.inputs),
            )
        )
        return (("grpc-status-details-bin", status.SerializeToString()),)


async def _state(
    resource_id: str, inputs: PropertyValues, call: Callable[[], Properties]
) -> dict[str, PropertyValue]:
    """Lets the cloud make or change a resource; returns all that is known of it then."""

    def state(outputs: Properties) -> dict[str, PropertyValue]:
        common = resource_kinds.common_outputs(resource_id, plain(inputs))
        return {**without(inputs), **wrapped({**common, **outputs})}

    try:
        return state(await asyncio.to_thread(call))
    except HalfMadeError as error:
        raise InitFailedError(str(error), resource_id, inputs, state(error.outputs)) from None


def _token(urn_type: str) -> str:
    """Returns a type without those of its parents, which a URN puts before it with "$"."""
    return urn_type.rpartition("$")[2]


def _known_in_preview(inputs: PropertyValues) -> dict[str, PropertyValue]:
    return without(inputs, *UNKNOWN_IN_PREVIEW)


_MESSAGE: contextvars.ContextVar[Any] = contextvars.ContextVar("message")
"""The engine's message as it came."""


def _old_inputs() -> PropertyValues:
    """Returns what the library leaves out of its requests to diff, update and delete."""
    return PropertyValue.unmarshal_map(_MESSAGE.get().old_inputs)


def _told(name: str) -> Any:
    """Returns a method of the library's servicer whose errors are what Azure says."""
    library = getattr(server.ProviderServicer, name)

    async def method(self: Servicer, message: Any, context: Any) -> Any:
        _MESSAGE.set(message)
        try:
            return await library(self, message, context)
        except Exception as raised:
            error = raised.__context__ or raised  # The library wraps it, with its traceback.
            details = error.metadata() if isinstance(error, InitFailedError) else ()
            await context.abort(grpc.StatusCode.UNKNOWN, str(error), details)

    return method


class Servicer(server.ProviderServicer):
    """The library's, but it keeps the message, and errors are what Azure says."""

    Check = _told("Check")
    Diff = _told("Diff")
    Create = _told("Create")
    Update = _told("Update")
    Delete = _told("Delete")
    Invoke = _told("Invoke")


if __name__ == "__main__":
    serve(FileCloud.from_environment())
