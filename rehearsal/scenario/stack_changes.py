"""Acts in which `up` or `destroy` changes the stack."""

from __future__ import annotations

import json
import time
from functools import partial

from infra.stack.last_start import TRAINING
from rehearsal.azure.resources.resource_kinds import Properties, all_of
from rehearsal.azure.resources.run_commands import RUN_COMMAND
from rehearsal.backend import Backend
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.machines.machine import Machine, all_machines
from rehearsal.paths import ROOT
from rehearsal.scenario.context import Context
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import NodeWatch, until

ARTICLES_EXPERIMENT = ROOT / "rehearsal/scenario/articles_experiment.yaml"
MISSING_PACKAGE = "volley-package-that-does-not-exist"
BROKEN = "/run/systemd/system/sync-results.service.d/broken.conf"
"""Makes the service fail that saves the results."""
KEPT = [
    *("BlobContainer", "BlobContainer", "BlobServiceProperties", "ManagementPolicy"),
    *("ResourceGroup", "StorageAccount"),
]


def up(context: Context, **changes: str) -> str:
    start = time.monotonic()
    result = context.up(**changes)
    if result.error:
        raise UnexpectedError(result.error)
    first_update = time.monotonic() - start
    joined = context.training.started() - start
    made = sum(operation == "create" for operation, _ in result.operations)
    return (
        f"{made} types of resources; nodes joined after {joined:.0f} s, "
        f"first learner update after {first_update:.0f} s"
    )


def scale(context: Context, nodes: NodeWatch, workers: int) -> str:
    """Changes the number of workers."""
    result = context.up(maxWorkers=str(workers))
    if result.error or result.operations != {("update", RUN_COMMAND)}:
        raise UnexpectedError(result.error or str(sorted(result.operations)))
    found = 1 + workers
    seconds = until(lambda: len(nodes.alive) == found, 120, f"{found} nodes")
    gone = until(lambda: len(all_machines()) == found, 60, f"{found} machines")
    continued = context.training.continues(30)
    return (
        f"{found} nodes after {seconds:.0f} s, machines {gone:.0f} s later; training continued "
        f"within {continued:.0f} s"
    )


def experiment(context: Context) -> str:
    """Changes the experiment; the new one has the articles' names."""
    context.up_with_new_run(experiment=str(ARTICLES_EXPERIMENT))
    return "the run command ran, no machine was touched, a new MLflow run"


def failed_start(context: Context) -> str:
    """A change of the start alone, but the results cannot be saved; then `up` with no change.

    Azure does not execute an unchanged run command again, so `up` has to change it.
    """
    _break(context.head)
    failed = context.up(clusterCoordinationTimeoutSeconds="181")
    _mend(context.head)
    if "the results cannot be saved" not in failed.error:
        raise UnexpectedError(failed.error or "`up` succeeded")
    again = context.up()
    if again.error or again.operations != {("update", RUN_COMMAND)}:
        raise UnexpectedError(again.error or str(sorted(again.operations)))
    context.check_same_run()
    if third := context.up().operations:
        raise UnexpectedError(str(sorted(third)))
    return "failed with its reason; the next `up` started the training, and another one nothing"


def up_killed(context: Context, driver: PulumiCli) -> str:
    """`make up` is killed twice, each time while the head starts the training; then it may end."""
    # The training starts again for it.
    config = {**context.config, "numEnvRunners": "2"}
    for _ in range(2):
        earlier = _execution()["executionId"]
        driver.killed_make_up(config, partial(_wait_for_another, earlier))
    result = driver.make_up()
    if result.error:
        raise UnexpectedError(result.error)
    context.config = config
    context.check_same_run()
    if _execution()["executionState"] != "Succeeded":
        raise UnexpectedError(str(_execution()))
    if operations := context.up().operations:
        raise UnexpectedError(str(sorted(operations)))
    return "the third `make up` started the training, the same MLflow run"


def failing_boot(context: Context) -> str:
    """Asks for an apt package that does not exist; the machines are replaced and fail to boot."""
    result = context.up(aptPackages=json.dumps([MISSING_PACKAGE]))
    if MISSING_PACKAGE not in result.error:
        raise UnexpectedError(result.error or "`up` succeeded")
    replaced = {kind for operation, kind in result.operations if operation == "replace"}
    why = min((line for line in result.error.splitlines() if MISSING_PACKAGE in line), key=len)
    return f"{', '.join(sorted(replaced))} replaced; then: {why.strip()}"


def destroy(context: Context) -> str:
    (account,) = all_of(Backend().resources(), "StorageAccount").values()
    context.account = account.inputs["accountName"]
    result = context.driver.destroy()
    if result.error:
        raise UnexpectedError(result.error)
    kept = sorted(resource.kind for resource in Backend().resources().values())
    machines = [machine.name for machine in all_machines()]
    if machines or kept != KEPT:
        raise UnexpectedError(f"left: {', '.join([*machines, *kept])}")
    return f"left: {', '.join(kept)}"


def _execution() -> Properties:
    """What Azure knows of the last start of the training."""
    commands = all_of(Backend().resources(), RUN_COMMAND).values()
    (view,) = [one.instance_view for one in commands if one.inputs["runCommandName"] == TRAINING]
    return view


def _wait_for_another(earlier: str) -> None:
    until(lambda: _execution()["executionId"] != earlier, 120, "another start of the training")


def _break(head: Machine) -> None:
    """Lets the head's results not be saved."""
    fails = "[Service]\nExecStartPre=/bin/false\n"
    head.run("install", "-D", "-m", "0644", "/dev/stdin", BROKEN, text=fails)
    head.run("systemctl", "daemon-reload")


def _mend(head: Machine) -> None:
    head.run("rm", BROKEN)
    head.run("systemctl", "daemon-reload")
