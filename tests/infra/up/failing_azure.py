"""The Azure stand-in with faults; the engine runs it, and environment variables set the faults."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, TypeVar

import psutil

from infra.stack.run_command import TRAINING
from rehearsal.azure.azure_errors import ArmError, HalfMadeError
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.pulumi_provider import serve
from rehearsal.azure.resources.resource_kinds import Properties, Resource, all_of, short_type
from rehearsal.azure.resources.run_commands import RUN_COMMAND, Execution

T = TypeVar("T")
REASON = "E: Unable to locate package nosuch"
"""The error output of a failing run command."""
NO_CAPACITY = ArmError(
    "SkuNotAvailable", "The requested VM size Standard_NC4as_T4_v3 is currently not available."
)


class FailingAzure(Azure):
    """Creates everything, but reports that resources of the failing type did not come up."""

    def __init__(self, file: Path, failing: str = "") -> None:
        super().__init__(file)
        self.failing = failing
        """A short type, such as "NatGateway"; for run commands, only the training's fails."""

    def create(self, token: str, resource_id: str, inputs: Properties) -> Properties:
        if short_type(token) == self.failing == "VirtualMachine":
            self.refused = {"VirtualMachine": NO_CAPACITY}
        added = super().create(token, resource_id, inputs)
        if short_type(token) == self.failing != RUN_COMMAND:
            raise HalfMadeError(f"{resource_id} was made but did not come up", added)
        return added

    def outcome(self, vm: Resource, execution_id: str) -> Execution | None:
        (command,) = [
            key
            for key, one in all_of(self.resources(), RUN_COMMAND).items()
            if one.instance_view.get("executionId") == execution_id
        ]
        fails = self.failing == RUN_COMMAND and command.endswith(f"/{TRAINING}")
        return Execution(1, error=REASON) if fails else Execution()


@dataclass(frozen=True)
class Kill:
    """The operations in which the engine is killed."""

    before: int = 0
    after: int = 0
    begun: Mapping[str, bool] = field(default_factory=dict)
    """For the first operation on each type: whether Azure has begun it."""


def parse_kill(text: str) -> Kill:
    """Parses the argument `kill` of `KillingAzure`."""
    first, *rest = text.split() or [""]
    if first == "before":
        return Kill(before=int(rest[0]))
    if first == "after":
        return Kill(after=int(rest[0]))
    return Kill(begun={name.lstrip("-"): name[0] != "-" for name in text.split()})


class KillingAzure(FailingAzure):
    """Kills the engine in one of its operations: after Azure has begun it, or before."""

    def __init__(self, file: Path, failing: str, kill: str) -> None:
        """
        Args:
            kill: "after 3" or "before 3": the third operation. Or types, "Subnet -NatGateway": the
                first operation on each of them gets no answer, and with a minus Azure does not even
                begin it; the engine is killed once it waits for all of them.
        """
        super().__init__(file, failing)
        self.kill = parse_kill(kill)
        self.operations = 0
        self.unanswered: set[str] = set()
        self.hanging = 0
        self.counting = threading.Lock()

    def create(self, token: str, resource_id: str, inputs: Properties) -> Properties:
        kind = short_type(token)
        create = super().create
        return self._killed(kind, lambda: create(token, resource_id, inputs))

    def update(self, resource_id: str, inputs: Properties) -> Properties:
        update = super().update
        return self._killed(self._kind(resource_id), lambda: update(resource_id, inputs))

    def delete(self, resource_id: str) -> None:
        delete = super().delete
        self._killed(self._kind(resource_id), lambda: delete(resource_id))

    def _kind(self, resource_id: str) -> str:
        resource = self.resources().get(resource_id)
        return resource.kind if resource else ""

    def _killed(self, kind: str, operation: Callable[[], T]) -> T:
        """Performs an operation, unless the engine is killed during it."""
        with self.counting:
            self.operations += 1
            place = self.operations
            is_first = kind in self.kill.begun and kind not in self.unanswered
            self.unanswered |= {kind} if is_first else set()
        if place == self.kill.before:
            _kill_engine()
        if is_first and not self.kill.begun[kind]:
            self._never_answer()
        result = operation()
        if place == self.kill.after:
            _kill_engine()
        if is_first:
            self._never_answer()
        return result

    def _never_answer(self) -> NoReturn:
        with self.counting:
            self.hanging += 1
            if self.hanging == len(self.kill.begun):
                _kill_engine()
        threading.Event().wait()
        raise AssertionError("nothing sets the event")


def _kill_engine() -> NoReturn:
    """Kills the engine and the processes that it started, as a power cut does."""
    engine = psutil.Process().parent()
    assert engine is not None
    others = [child for child in engine.children(recursive=True) if child.pid != os.getpid()]
    for process in (engine, *others):
        with suppress(psutil.NoSuchProcess):
            process.kill()
    os._exit(1)


if __name__ == "__main__":
    serve(
        KillingAzure(
            Path(os.environ["AZURE_FILE"]),
            os.environ.get("AZURE_FAILING", ""),
            os.environ.get("AZURE_KILL", ""),
        )
    )
