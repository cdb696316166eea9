"""What all acts share: the stack's configuration and outputs, the head, and the laptop."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

from rehearsal.addresses import ADMIN_ADDRESS
from rehearsal.azure.resources.resource_kinds import SUBSCRIPTION
from rehearsal.azure.resources.run_commands import RUN_COMMAND
from rehearsal.drivers.driver import Driver, Operation, Result
from rehearsal.host_paths import ROOT, RUN
from rehearsal.machines.nspawn_machine import Machine, all_machines
from rehearsal.scenario.laptop import Laptop, newest_run, runs
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import Training, until

EXPERIMENT = ROOT / "rehearsal/scenario/rehearsal_experiment.yaml"
WORKERS = 2
NEW_RUN_S = 30.0
RUN_COMMAND_CHANGED: tuple[Operation, str] = ("update", RUN_COMMAND)
IMAGES = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/images/providers/Microsoft.Compute/images"
IMAGE_WITH_ENVIRONMENT = f"{IMAGES}/with-environment"


class Context:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.laptop = Laptop(RUN / "laptop")
        self.config = stack_config(self.laptop.public_key)
        self.outputs: dict[str, Any] = {}
        self.head = Machine("head")
        self.training = Training(self.head)
        self.run_id = ""
        """Id of the newest MLflow run."""
        self.experiment_id = ""
        """Id of its MLflow experiment."""
        self.account = ""
        """The storage account that `destroy` leaves."""

    def up(self, **changes: str) -> Result:
        """Runs `up` with a changed configuration."""
        self.config = {**self.config, **changes}
        result = self.driver.up(self.config)
        self.outputs = result.outputs or self.outputs
        return result

    def up_doing(self, *operations: tuple[Operation, str], **changes: str) -> None:
        """Runs `up`, which must do these operations and no others."""
        result = self.up(**changes)
        if result.error or result.operations != set(operations):
            raise UnexpectedError(result.error or str(sorted(result.operations)))

    def up_in_place(self, *operations: tuple[Operation, str], **changes: str) -> int:
        """Does the same; fails if a machine is made, deleted or restarted; returns their number."""
        before = {machine.name: machine.leader for machine in all_machines()}
        self.up_doing(*operations, **changes)
        if before != {machine.name: machine.leader for machine in all_machines()}:
            raise UnexpectedError("a machine was made, deleted or started again")
        return len(before)

    def tunnel(self) -> AbstractContextManager[Laptop]:
        return self.laptop.tunnel(self.outputs["tunnel"])

    def newest_run(self) -> dict[str, Any]:
        with self.tunnel() as laptop:
            return newest_run(laptop, self.outputs["mlflow"])

    def check_same_run(self) -> None:
        """Raises UnexpectedError if a new MLflow run has started."""
        run_id = self.newest_run()["info"]["run_id"]
        if run_id != self.run_id:
            raise UnexpectedError(f"another MLflow run, {run_id}")

    def check_runs(self, finished: int) -> str:
        """Checks how many MLflow runs have finished; returns how many have which status.

        A stopped run is KILLED, as is one that was cut off before its first checkpoint.
        """
        with self.tunnel() as laptop:
            all_runs = runs(laptop, self.outputs["mlflow"])
        numbers = Counter(run["info"]["status"] for run in all_runs)
        seen = ", ".join(f"{number} {status}" for status, number in sorted(numbers.items()))
        if numbers["FINISHED"] != finished or numbers.keys() - {"FINISHED", "KILLED"}:
            raise UnexpectedError(f"MLflow: {seen}")
        return seen

    def up_with_new_run(self, **changes: str) -> None:
        """Changes the experiment.

        Raises:
            UnexpectedError: More than the run command has changed.
            TimeoutError: The old MLflow run continues.
        """
        self.up_in_place(RUN_COMMAND_CHANGED, **changes)
        # `up` ends with the first learner update, and the payload makes its run after that.
        old, mlflow = self.run_id, self.outputs["mlflow"]
        with self.tunnel() as laptop:

            def is_new() -> bool:
                self.run_id = newest_run(laptop, mlflow)["info"]["run_id"]
                return self.run_id != old

            until(is_new, NEW_RUN_S, "a new MLflow run", pause_s=0.5)


def stack_config(public_key: str) -> dict[str, str]:
    """Returns the rehearsal's stack: a head and two workers that fit on a small machine."""
    return {
        "adminCidr": f"{ADMIN_ADDRESS}/32",
        "sshPublicKey": public_key,
        "headSize": "Standard_D2as_v5",
        "minWorkers": str(WORKERS),
        "maxWorkers": str(WORKERS),
        "clusterCoordinationTimeoutSeconds": "180",
        "sharedMemoryGib": "1",
        "checkQuota": "false",
        "environmentVariables": json.dumps(
            {"RAY_OVERRIDE_RESOURCES": '{"CPU": 1}', "WORKERS_TIMEOUT_S": "30"}
        ),
        "experiment": str(EXPERIMENT),
    }
