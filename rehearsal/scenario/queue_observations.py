"""What the scenario `queue` observes: states of experiments, MLflow's runs and Azure's machines."""

from __future__ import annotations

import subprocess
import time
from collections import Counter

from rehearsal.azure.resources.resource_kinds import all_of
from rehearsal.azure.resources.scale_set_machines import machines_of
from rehearsal.backend import Backend
from rehearsal.machines.nspawn_machine import all_machines
from rehearsal.scenario.context import Context
from rehearsal.scenario.laptop import runs
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until
from rehearsal.scenario.volley_command import Volley


def states(volley: Volley) -> dict[str, str]:
    """Returns the experiments' states; nothing while the head does not answer."""
    try:
        experiments = volley.experiments().items()
    except (UnexpectedError, subprocess.TimeoutExpired):
        return {}
    return {name: experiment["state"] for name, experiment in experiments}


def training_count(volley: Volley) -> int:
    return list(states(volley).values()).count("TRAINING")


def finished(volley: Volley) -> set[str]:
    """Returns the names of the experiments that are finished; none may have failed."""
    by_name = states(volley)
    if failed := [name for name, state in by_name.items() if state == "FAILED"]:
        raise UnexpectedError(f"{', '.join(failed)} failed")
    return {name for name, state in by_name.items() if state == "FINISHED"}


def check_runs(context: Context, finished_count: int) -> str:
    """Checks how many MLflow runs have finished; returns how many have which status.

    A stopped run is KILLED, as is one that was cut off before its first checkpoint.
    """
    with context.tunnel() as laptop:
        all_runs = runs(laptop, context.outputs["mlflow"])
    numbers = Counter(run["info"]["status"] for run in all_runs)
    seen = ", ".join(f"{number} {status}" for status, number in sorted(numbers.items()))
    if numbers["FINISHED"] != finished_count or numbers.keys() - {"FINISHED", "KILLED"}:
        raise UnexpectedError(f"MLflow: {seen}")
    return seen


def azure_workers() -> set[str]:
    (scale_set,) = all_of(Backend().resources(), "VirtualMachineScaleSet").values()
    machines = machines_of(scale_set, time.time())
    return {machine.name for machine in machines if machine.gone is None}


def check_only_azures_machines() -> None:
    """Waits until exactly the machines run that Azure has: a change takes a moment."""

    def same() -> bool:
        return {machine.name for machine in all_machines()} == {"head", *azure_workers()}

    until(same, 30, "exactly Azure's machines run")
