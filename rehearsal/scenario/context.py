"""What all acts share: the stack's configuration and outputs, the head, and the laptop."""

from __future__ import annotations

import json
from typing import Any

from rehearsal.addresses import ADMIN_ADDRESS
from rehearsal.drivers.driver import Driver, Result
from rehearsal.machines.machine import Machine
from rehearsal.paths import ROOT, RUN
from rehearsal.scenario.laptop import Laptop, Tunnel, newest_run
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import Training

EXPERIMENT = ROOT / "rehearsal/scenario/rehearsal_experiment.yaml"
WORKERS = 2


class Context:
    """One rehearsal, as far as it has come."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.laptop = Laptop(RUN / "laptop")
        self.config = stack_config(self.laptop.public_key)
        self.outputs: dict[str, Any] = {}
        self.head = Machine("head")
        self.training = Training(self.head)
        self.run_id = ""
        """Of the newest MLflow run."""
        self.account = ""
        """The storage account that `destroy` leaves."""

    def up(self, **changes: str) -> Result:
        """Runs `up` with a changed configuration."""
        self.config = {**self.config, **changes}
        result = self.driver.up(self.config)
        self.outputs = result.outputs or self.outputs
        return result

    def tunnel(self) -> Tunnel:
        return Tunnel(self.laptop, self.outputs["tunnel"])

    def newest_run(self) -> dict[str, Any]:
        """Returns MLflow's newest run, read through the tunnel."""
        with self.tunnel() as laptop:
            return newest_run(laptop, self.outputs["mlflow"])

    def check_same_run(self) -> None:
        """Raises UnexpectedError if a new MLflow run has started."""
        run_id = self.newest_run()["info"]["run_id"]
        if run_id != self.run_id:
            raise UnexpectedError(f"another MLflow run, {run_id}")


def stack_config(public_key: str) -> dict[str, str]:
    """Returns the rehearsal's stack: a head and two workers that fit on a small machine."""
    return {
        "adminCidr": f"{ADMIN_ADDRESS}/32",
        "sshPublicKey": public_key,
        "headSize": "Standard_D2as_v5",
        "minWorkers": str(WORKERS),
        "maxWorkers": str(WORKERS),
        "workerSettleSeconds": "0",
        "clusterCoordinationTimeoutSeconds": "180",
        "sharedMemoryGib": "1",
        "checkQuota": "false",
        "environmentVariables": json.dumps(
            {"RAY_OVERRIDE_RESOURCES": '{"CPU": 1}', "WORKERS_TIMEOUT_S": "30"}
        ),
        "experiment": str(EXPERIMENT),
    }
