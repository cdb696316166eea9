"""The stack's program on Pulumi's mocks, and what Pulumi's engine would do with what it declares.

Creates, updates, replaces (before that, deletes) and deletes, in the order of the program and
against the order of creation; a replaced machine takes with it what is deleted with it.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pulumi
from pulumi.runtime import MockCallArgs, MockResourceArgs, Mocks
from pulumi.runtime.mocks import MockMonitor
from pulumi.runtime.stack import wait_for_rpcs

from infra.__main__ import declare
from infra.config.read import ConfigError, read_settings
from infra.training import training_script
from rehearsal.azure import resource_kinds
from rehearsal.azure.resource_kinds import Properties
from rehearsal.azure.resources import AzureError, Cloud, HalfMadeError
from rehearsal.drivers.driver import Operation, Result
from tests.project import ROOT

STACK = "rehearsal"


@dataclass
class State:
    """What the engine knows of a resource."""

    token: str
    resource_id: str
    inputs: Properties
    added: Properties
    urn: str
    retained: bool
    deleted_with: str
    failed: bool = False
    """It exists and did not come up: the next `up` tries again."""


class InProcess:
    """Drives a cloud without Pulumi's engine."""

    name = "in-process"

    def __init__(self, cloud: Cloud, state_file: Path) -> None:
        self.cloud = cloud
        self.file = state_file
        known = json.loads(state_file.read_text()) if state_file.exists() else {}
        self.states = {key: State(**value) for key, value in known.items()}

    def up(self, config: Mapping[str, str]) -> Result:
        try:
            settings = read_settings(config, ROOT)
            script = training_script(settings, ROOT)
        except ConfigError as error:
            return Result(error=str(error))
        update = _Update(self)
        outputs: dict[str, Any] = {}

        async def program() -> None:
            # What fails is told once; each resource that waits for it would tell it again.
            asyncio.get_running_loop().set_exception_handler(lambda *_: None)
            pulumi.runtime.set_mocks(
                _Answers(self.cloud, update), "volley", STACK, monitor=_Monitor(update)
            )
            pulumi.Output.all(**declare(settings, script)).apply(outputs.update)
            await wait_for_rpcs()

        try:
            asyncio.run(program())
        except Exception as error:
            return Result(update.error or str(error), frozenset(update.operations))
        for key in [key for key in self.states if key not in update.seen][::-1]:
            update.delete(key)
        return Result("", frozenset(update.operations), outputs)

    def destroy(self) -> Result:
        update = _Update(self)
        for key in list(self.states)[::-1]:
            update.delete(key)
        return Result("", frozenset(update.operations))

    def save(self) -> None:
        self.file.write_text(json.dumps({key: asdict(one) for key, one in self.states.items()}))


class _Update:
    """One `up` or `destroy`."""

    def __init__(self, engine: InProcess) -> None:
        self.engine = engine
        self.operations: set[tuple[Operation, str]] = set()
        self.seen: set[str] = set()
        self.replaced: set[str] = set()
        self.error = ""
        self.one_at_a_time = threading.RLock()

    def register(self, urn: str, request: Any, inputs: Properties) -> State:
        """Makes a resource what the program declares; returns what is known of it."""
        key = f"{request.type}::{request.name}"
        kind = resource_kinds.kind_of(request.type)
        with self.one_at_a_time:
            self.seen.add(key)
            old = self.engine.states.get(key)
            if kind.name not in inputs:
                chosen = resource_kinds.chosen_name(kind, request.name, urn, STACK.encode())
                inputs = {**inputs, kind.name: chosen}
            if old is None:
                return self._create("create", key, urn, request, inputs)
            if self._is_replaced(kind, request, old, inputs):
                self.replaced.add(urn)
                self._unmake(key)
                return self._create("replace", key, urn, request, inputs)
            if old.inputs != inputs or old.failed:
                self._change("update", old, inputs)
            return old

    def delete(self, key: str) -> None:
        """Forgets a resource; and deletes it, unless it is retained or goes with another."""
        state = self.engine.states[key]
        self.operations.add(("delete", _kind_name(state.token)))
        self._unmake(key)

    def _is_replaced(
        self, kind: resource_kinds.Kind, request: Any, old: State, inputs: Properties
    ) -> bool:
        changed = resource_kinds.changed_keys(old.inputs, inputs)
        paths = [
            path
            for key in changed
            for path in resource_kinds.changed_paths(key, old.inputs.get(key), inputs.get(key))
        ]
        named = any(path.startswith(tuple(request.replaceOnChanges)) for path in paths)
        with_others = [request.deletedWith, *request.replace_with]
        gone = not self.replaced.isdisjoint(with_others)
        return bool(resource_kinds.replaces(kind, changed)) or named or gone

    def _create(
        self,
        operation: Operation,
        key: str,
        urn: str,
        request: Any,
        inputs: Properties,
    ) -> State:
        resource_id = resource_kinds.resource_id(resource_kinds.kind_of(request.type), inputs)
        state = State(
            request.type, resource_id, inputs, {}, urn, request.retainOnDelete, request.deletedWith
        )
        self.engine.states[key] = state
        try:
            self._make(operation, state)
        except AzureError:
            del self.engine.states[key]
            raise
        finally:
            self.engine.save()
        return state

    def _make(self, operation: Operation, state: State) -> None:
        self.operations.add((operation, _kind_name(state.token)))
        with self._failing_truly(state):
            state.added = self.engine.cloud.create(state.token, state.resource_id, state.inputs)

    def _change(self, operation: Operation, state: State, inputs: Properties) -> None:
        self.operations.add((operation, _kind_name(state.token)))
        old, state.inputs = state.inputs, inputs
        try:
            with self._failing_truly(state):
                state.added = self.engine.cloud.update(state.token, state.resource_id, old, inputs)
        finally:
            self.engine.save()

    @contextmanager
    def _failing_truly(self, state: State) -> Iterator[None]:
        """Keeps what goes wrong: for the person, and for the next `up`."""
        state.failed = False
        try:
            yield
        except Exception as error:
            self.error = self.error or f"{state.urn}: {error}"
            if isinstance(error, HalfMadeError):
                state.failed, state.added = True, error.outputs
            raise

    def _unmake(self, key: str) -> None:
        state = self.engine.states.pop(key)
        if not state.retained and state.deleted_with not in self.replaced:
            self.engine.cloud.delete(state.token, state.resource_id, state.inputs)
        self.engine.save()


class _Answers(Mocks):
    """What the program hears from the cloud."""

    def __init__(self, cloud: Cloud, update: _Update) -> None:
        self.cloud, self.update = cloud, update

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if not args.typ.startswith("azure-native:"):
            return args.name, dict(args.inputs)
        urn, request = _Monitor.now.request
        state = self.update.register(urn, request, _whole(args.inputs))
        outputs = resource_kinds.common_outputs(state.resource_id, state.inputs)
        return state.resource_id, {**state.inputs, **outputs, **state.added}

    def call(self, args: MockCallArgs) -> Any:
        return self.cloud.invoke(args.token, dict(args.args))


class _Monitor(MockMonitor):
    """Hands the engine's request on, which the mocks do not see."""

    now = threading.local()

    def __init__(self, update: _Update) -> None:
        super().__init__(_Answers(update.engine.cloud, update))

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        self.now.request = self.make_urn(request.parent, request.type, request.name), request
        return super().RegisterResource(request)


def _kind_name(token: str) -> str:
    return token.rpartition(":")[2]


def _whole(value: Any) -> Any:
    """Whole numbers, which travel as floats, are integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list | tuple) else value
