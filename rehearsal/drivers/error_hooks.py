"""The program's error hooks, called as Pulumi's engine calls them: over gRPC, in the program."""

from __future__ import annotations

from typing import Any

import grpc
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.proto import callback_pb2, callback_pb2_grpc, resource_pb2

from rehearsal.azure.property_values import wrapped
from rehearsal.azure.resource_kinds import Properties

Callback = Any
"""pulumi.runtime.proto.callback_pb2.Callback: where the program listens, and for what."""


def call_error_hook(
    hook: Callback, urn: str, request: Any, inputs: Properties, operation: str, error: str
) -> None:
    """Tells a hook of the program that an operation has failed; a retry is not imitated.

    Args:
        request: The RegisterResourceRequest of the resource.

    Raises:
        RuntimeError: The hook failed.
    """
    failed = resource_pb2.ErrorHookRequest(
        urn=urn,
        name=request.name,
        type=request.type,
        new_inputs=PropertyValue.marshal_map(wrapped(inputs)),
        failed_operation=operation,
        errors=[error],
    )
    with grpc.insecure_channel(hook.target) as channel:
        answered = callback_pb2_grpc.CallbacksStub(channel).Invoke(
            callback_pb2.CallbackInvokeRequest(token=hook.token, request=failed.SerializeToString())
        )
    answer = resource_pb2.ErrorHookResponse.FromString(answered.response)
    if answer.error:
        raise RuntimeError(answer.error)
    if answer.retry:
        raise NotImplementedError("an error hook that retries")
