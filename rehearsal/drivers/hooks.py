"""The program's hooks, called in the program's event loop as the SDK calls them.

Pulumi's engine calls them over gRPC. Here they are called directly: a process that has had a gRPC
server cannot start other processes safely, and tests run in the same process.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pulumi
from pulumi.runtime import settings

from rehearsal.azure.resources.resource_kinds import Properties


class Hooks:
    """Replaces the SDK's callback server; created in the program."""

    def __init__(self) -> None:
        self._error_hooks: dict[str, pulumi.ErrorHook] = {}
        self._hooks: dict[str, pulumi.ResourceHook] = {}
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        settings.SETTINGS.callbacks = self

    def register_error_hook(self, hook: pulumi.ErrorHook) -> None:
        self._error_hooks[hook.name] = hook

    def register_resource_hook(self, hook: pulumi.ResourceHook) -> None:
        self._hooks[hook.name] = hook

    def before_update(self, urn: str, request: Any, before: Properties, after: Properties) -> None:
        """Calls the hooks of a RegisterResourceRequest; whatever one raises stops the update."""
        args = pulumi.ResourceHookArgs(
            urn, "", request.name, request.type, new_inputs=after, old_inputs=before
        )
        for name in request.hooks.before_update:
            self._call(self._hooks[name].callback, args)

    def retry(
        self, urn: str, request: Any, inputs: Properties, operation: str, errors: list[str]
    ) -> bool:
        """Tells the hooks of a RegisterResourceRequest about a failure; returns whether to retry.

        `errors` are those of all attempts, the newest first.
        """
        failed = pulumi.ErrorHookArgs(
            urn, "", request.name, request.type, inputs, None, None, operation, errors
        )
        answers = [
            self._call(self._error_hooks[name].callback, failed) for name in request.hooks.on_error
        ]
        return any(answers)

    def _call(self, hook: Callable[[Any], Any], args: Any) -> bool:
        answer: Future[Any] = Future()

        def run() -> None:
            try:
                answer.set_result(hook(args))
            except Exception as raised:  # It is raised again in the thread that waits.
                answer.set_exception(raised)

        self._loop.call_soon_threadsafe(run, context=self._context)
        return bool(answer.result())
