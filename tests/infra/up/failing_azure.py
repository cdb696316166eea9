"""Azure's stand-in with faults; run as the engine's provider, the environment says which."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

from infra.stack.last_start import TRAINING
from rehearsal.azure.azure_errors import ArmError, HalfMadeError
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.pulumi_provider import serve
from rehearsal.azure.resources.resource_kinds import Properties, Resource, all_of, short_type
from rehearsal.azure.resources.run_commands import RUN_COMMAND, Execution

T = TypeVar("T")
REASON = "E: Unable to locate package nosuch"
"""What a run command says that fails."""
NO_CAPACITY = ArmError(
    "SkuNotAvailable", "The requested VM size Standard_NC4as_T4_v3 is currently not available."
)


class FailingAzure(Azure):
    """Makes everything; what is of a type that fails is told not to have come up."""

    def __init__(self, file: Path, failing: str = "") -> None:
        super().__init__(file)
        self.failing = failing
        """A short type, "NatGateway"; of the run commands the training fails."""

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


class KillingAzure(FailingAzure):
    """Kills the engine in one of its operations: after Azure has begun it, or before."""

    def __init__(self, file: Path, failing: str, kill: str) -> None:
        """
        Args:
            kill: "after 3" or "before 3": the third operation.
        """
        super().__init__(file, failing)
        self.when, _, place = kill.partition(" ")
        self.left = int(place or 0)

    def create(self, token: str, resource_id: str, inputs: Properties) -> Properties:
        return self._counted(lambda: super(KillingAzure, self).create(token, resource_id, inputs))

    def update(self, resource_id: str, inputs: Properties) -> Properties:
        return self._counted(lambda: super(KillingAzure, self).update(resource_id, inputs))

    def delete(self, resource_id: str) -> None:
        self._counted(lambda: super(KillingAzure, self).delete(resource_id))

    def _counted(self, operation: Callable[[], T]) -> T:
        self.left -= 1
        is_it = self.left == 0
        if is_it and self.when == "before":
            _kill_engine()
        result = operation()
        if is_it:
            _kill_engine()
        return result


def _kill_engine() -> NoReturn:
    os.kill(os.getppid(), signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    serve(
        KillingAzure(
            Path(os.environ["AZURE_FILE"]),
            os.environ.get("AZURE_FAILING", ""),
            os.environ.get("AZURE_KILL", ""),
        )
    )
