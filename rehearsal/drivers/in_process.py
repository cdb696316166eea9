"""The stack's program on Pulumi's mocks, with Pulumi's engine imitated.

Resources are created, updated and replaced in the order of the program, and deleted in the reverse
order of their creation. A replaced resource is deleted first, with those declared `deletedWith` it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import grpc.aio
import pulumi
from pulumi.runtime import MockCallArgs, MockResourceArgs, Mocks
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.settings import SETTINGS
from pulumi.runtime.stack import wait_for_rpcs

from infra.config.read_stack import ConfigError, read_settings
from infra.stack.ray_cluster import RayCluster
from rehearsal.azure.azure_errors import AzureError, HalfMadeError
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.property_changes import changes
from rehearsal.azure.resources.pulumi_provider import plain_value
from rehearsal.azure.resources.resource_kinds import SUBSCRIPTION, Properties, kind_of, short_type
from rehearsal.drivers.driver import STACK, Operation, Result
from rehearsal.drivers.hooks import Hooks
from rehearsal.host_paths import ROOT

MAX_ATTEMPTS = 100
"""Pulumi's engine, pkg/resource/deploy/retries.go: maxErrorHookRetries."""
PROVIDER = "pulumi:providers:azure-native"


@dataclass(frozen=True)
class State:
    """The engine's state of a resource, in addition to Azure's."""

    token: str
    resource_id: str
    urn: str
    retained: bool
    deleted_with: str
    inputs: Properties
    """The inputs that were last sent to Azure."""
    failed: bool = False
    """It exists but did not come up: the next `up` updates it."""


class InProcess:
    """Declares a stack without Pulumi's engine."""

    name = "the program in this process"

    def __init__(self, azure: Azure, stack: str = STACK) -> None:
        self.azure = azure
        self.stack = stack
        self.states: dict[str, State] = {}
        """By type and name in the program."""
        self.requests: dict[str, Any] = {}
        """The RegisterResourceRequests of the program's last run, by the same keys."""

    def up(self, config: Mapping[str, str]) -> Result:
        try:
            settings = read_settings({**config, "checkQuota": "false"}, ROOT)
        except ConfigError as error:
            return Result(error=str(error))
        update = _Update(self)
        outputs: dict[str, Any] = {}

        async def program() -> None:
            # A failure is reported once; each resource that waits for it would report it again.
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            pulumi.runtime.set_mocks(
                _Mocks(update),
                project="volley",
                stack=self.stack,
                monitor=_Monitor(update),
                logger=_error_log(update.errors),
            )
            # Settings of mocks share one set of pending outputs between all programs of a process.
            SETTINGS.outputs = set()
            update.hooks = Hooks()
            cluster = RayCluster(f"volley-{self.stack}", settings, ROOT)
            pulumi.Output.all(**cluster.outputs).apply(outputs.update)
            try:
                await wait_for_rpcs()
            except asyncio.CancelledError:
                # The process is being ended, and would wait for the thread that waits for Azure.
                self.azure.abandoned.set()
                raise

        self.requests = {}
        try:
            asyncio.run(program())
        except Exception as error:
            what = "\n".join(update.errors) or str(error)
            return Result(what, frozenset(update.operations))
        for key in [key for key in self.states if key not in self.requests][::-1]:
            update.delete(key)
        return Result("", frozenset(update.operations), outputs)

    def destroy(self) -> Result:
        update = _Update(self)
        update.gone |= {state.urn for state in self.states.values() if not state.retained}
        for key in list(self.states)[::-1]:
            update.delete(key)
        return Result("", frozenset(update.operations))


class _Update:
    def __init__(self, engine: InProcess) -> None:
        self.engine = engine
        self.azure = engine.azure
        self.operations: set[tuple[Operation, str]] = set()
        self.gone: set[str] = set()
        """URNs of replaced or destroyed resources: those deleted with them need no deletion."""
        self.subscriptions: dict[str, str] = {}
        """Subscriptions of the program's own providers, by name."""
        self.hooks: Hooks | None = None
        self.errors: list[str] = []
        """Failures, and the program's messages about them."""
        self.one_at_a_time = threading.Lock()

    def register(self, urn: str, request: Any, inputs: Properties) -> tuple[str, Properties]:
        """Creates or changes a resource as declared; returns its id and its properties."""
        key = _key(request)
        kind = kind_of(request.type)
        with self.one_at_a_time:
            chosen = kind.choose_name(request.name, urn, self.engine.stack.encode())
            inputs = {kind.name: chosen, **inputs}
            old = self.engine.states.get(key)
            if old is not None:
                inputs = _with_ignored(inputs, old.inputs, request.ignoreChanges)
            if old is None:
                self._create("create", urn, request, inputs)
            elif self._is_replaced(request, old, inputs):
                self.gone.add(urn)
                self._unmake(key)
                self._create("replace", urn, request, inputs)
            elif old.failed or old.inputs != inputs:
                self._update(request, inputs, old)
            resource_id = self.engine.states[key].resource_id
            made = self.azure.resources()[resource_id]
        return resource_id, {**made.inputs, **made.added}

    def delete(self, key: str) -> None:
        """Forgets a resource and deletes it, unless it is retained or deleted with another."""
        self.operations.add(("delete", short_type(self.engine.states[key].token)))
        self._unmake(key)

    def _is_replaced(self, request: Any, old: State, inputs: Properties) -> bool:
        if not self.gone.isdisjoint([request.deletedWith, *request.replace_with]):
            return True
        changed = changes(old.inputs, inputs)
        named = tuple(request.replaceOnChanges)
        by_name = any(path.startswith(named) for path in chain(*changed.values()))
        return by_name or bool(kind_of(request.type).replaces(changed))

    def _create(self, operation: Operation, urn: str, request: Any, inputs: Properties) -> None:
        provider = request.provider.rpartition("::")[0].rpartition("::")[2]
        subscription = self.subscriptions.get(provider, SUBSCRIPTION)
        resource_id = kind_of(request.type).resource_id(inputs, subscription)
        state = State(
            request.type, resource_id, urn, request.retainOnDelete, request.deletedWith, inputs
        )

        def create() -> None:
            self.azure.create(request.type, resource_id, inputs)

        self._do(operation, request, state, create)

    def _update(self, request: Any, inputs: Properties, old: State) -> None:
        def update() -> None:
            if self.hooks is not None:
                self.hooks.before_update(old.urn, request, old.inputs, inputs)
            self.azure.update(old.resource_id, inputs)

        self._do("update", request, replace(old, inputs=inputs), update)

    def _do(
        self, operation: Operation, request: Any, state: State, call: Callable[[], None]
    ) -> None:
        """Makes a call to Azure; records a failure for the user and for the next `up`."""
        self.operations.add((operation, short_type(state.token)))
        key = _key(request)
        failures: list[str] = []
        while True:
            try:
                call()
                break
            except Exception as error:
                failures.insert(0, str(error))
                hooks = self.hooks if len(failures) < MAX_ATTEMPTS else None
                if hooks and hooks.retry(state.urn, request, state.inputs, operation, failures):
                    continue
                self.errors.insert(0, f"{state.urn}: {error}")
                if isinstance(error, HalfMadeError):
                    self.engine.states[key] = replace(state, failed=True)
                raise
        self.engine.states[key] = replace(state, failed=False)

    def _unmake(self, key: str) -> None:
        state = self.engine.states.pop(key)
        if not state.retained and state.deleted_with not in self.gone:
            self.azure.delete(state.resource_id)


class _Mocks(Mocks):
    """Azure's answers to the program."""

    def __init__(self, update: _Update) -> None:
        self.update = update

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if args.typ == PROVIDER:
            self.update.subscriptions[args.name] = args.inputs["subscriptionId"]
        if not args.typ.startswith("azure-native:"):
            return args.name, dict(args.inputs)
        urn, request = _Monitor.now.request
        return self.update.register(urn, request, plain_value(args.inputs))

    def call(self, args: MockCallArgs) -> Any:
        try:
            return self.update.azure.invoke(args.token, dict(args.args))
        except AzureError as error:
            # The engine's answer when a function of Azure's fails.
            none = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNKNOWN, none, none, str(error)) from None


class _Monitor(MockMonitor):
    """Keeps the engine's requests, which the mocks do not see."""

    now = threading.local()

    def __init__(self, update: _Update) -> None:
        super().__init__(_Mocks(update))
        self.requests = update.engine.requests

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        self.requests[_key(request)] = request
        self.now.request = self.make_urn(request.parent, request.type, request.name), request
        return super().RegisterResource(request)


def _with_ignored(inputs: Properties, old: Properties, ignored: Iterable[str]) -> Properties:
    """Returns the inputs, with the old values of those whose changes are ignored."""
    for path in ignored:
        first, _, rest = path.partition(".")
        if first not in old:
            inputs = {key: value for key, value in inputs.items() if key != first}
        else:
            value = _with_ignored(inputs[first], old[first], [rest]) if rest else old[first]
            inputs = {**inputs, first: value}
    return inputs


def _error_log(errors: list[str]) -> logging.Logger:
    """Returns a logger that appends errors to a list."""

    class Appending(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            errors.append(record.getMessage())

    log = logging.Logger("pulumi", logging.ERROR)
    log.addHandler(Appending())
    return log


def _key(request: Any) -> str:
    return f"{request.type}::{request.name}"
