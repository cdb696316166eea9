"""The program's error hooks, called in the program's event loop as the SDK calls them.

Pulumi's engine calls them over gRPC. Here they are called directly: a process that has had a gRPC
server cannot start other processes safely, and tests run in the same process.
"""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import Future
from typing import Any

import pulumi
from pulumi.runtime import settings

from rehearsal.azure.resource_kinds import Properties


class ErrorHooks:
    """Stands for the SDK's server of callbacks; made in the program."""

    def __init__(self) -> None:
        self._hooks: dict[str, pulumi.ErrorHook] = {}
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        settings.SETTINGS.callbacks = self

    def register_error_hook(self, hook: pulumi.ErrorHook) -> None:
        self._hooks[hook.name] = hook

    def retry(
        self, urn: str, request: Any, inputs: Properties, operation: str, errors: list[str]
    ) -> bool:
        """Tells a resource's hooks that an operation has failed; returns whether to retry.

        Args:
            request: The RegisterResourceRequest of the resource.
            errors: Of all attempts, the newest first.
        """
        failed = pulumi.ErrorHookArgs(
            urn, "", request.name, request.type, inputs, None, None, operation, errors
        )
        asked = [self._call(self._hooks[name], failed) for name in request.hooks.on_error]
        return any(asked)

    def _call(self, hook: pulumi.ErrorHook, failed: pulumi.ErrorHookArgs) -> bool:
        answer: Future[Any] = Future()

        def run() -> None:
            try:
                answer.set_result(hook.callback(failed))
            except Exception as raised:  # It is raised again in the thread that waits.
                answer.set_exception(raised)

        self._loop.call_soon_threadsafe(run, context=self._context)
        return bool(answer.result())
