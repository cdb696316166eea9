"""Acts in which `up` or `destroy` changes the stack."""

from __future__ import annotations

import json
import time
from functools import partial

from infra.stack.run_command import TRAINING
from rehearsal.azure.resources.resource_kinds import Properties, Resources, all_of
from rehearsal.azure.resources.run_commands import RUN_COMMAND
from rehearsal.backend import Backend
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.host_paths import ROOT
from rehearsal.machines.nspawn_machine import Machine, all_machines
from rehearsal.scenario import head_commands, left_alone
from rehearsal.scenario.context import RUN_COMMAND_CHANGED, Context
from rehearsal.scenario.head_commands import OTHER_POLL, POLL, POLL_FILE, SOFTWARE
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import NodeWatch, until

ARTICLES_EXPERIMENT = ROOT / "rehearsal/scenario/articles_experiment.yaml"
MISSING_PACKAGE = "volley-package-that-does-not-exist"
KEPT = [
    "BlobContainer",
    "BlobContainer",
    "BlobServiceProperties",
    "ManagementPolicy",
    "ResourceGroup",
    "StorageAccount",
]
"""The types of the resources that `destroy` leaves."""


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
    context.up_doing(RUN_COMMAND_CHANGED, maxWorkers=str(workers))
    number = 1 + workers
    seconds = until(lambda: len(nodes.alive) == number, 120, f"{number} nodes")
    later = until(lambda: len(all_machines()) == number, 60, f"{number} machines")
    continued = context.training.continues(30)
    return (
        f"{number} nodes after {seconds:.0f} s, machines {later:.0f} s later; training continued "
        f"within {continued:.0f} s"
    )


def experiment(context: Context) -> str:
    """Changes the experiment; the new one has the articles' names."""
    context.up_with_new_run(experiment=str(ARTICLES_EXPERIMENT))
    return "the run command ran, no machine was touched, a new MLflow run"


def failed_start(context: Context) -> str:
    """Starts the training again while results cannot be saved; then runs `up` without a change.

    Azure does not execute an unchanged run command again, so `up` has to change it.
    """
    with head_commands.saving_does(context.head, "/bin/false"):
        failed = context.up(clusterCoordinationTimeoutSeconds="181")
    if "the results cannot be saved" not in failed.error:
        raise UnexpectedError(failed.error or "`up` succeeded")
    context.up_doing(RUN_COMMAND_CHANGED)
    context.check_same_run()
    context.up_doing()
    return "failed with its reason; the next `up` started the training, a third changed nothing"


def up_killed(context: Context, driver: PulumiCli) -> str:
    """Kills `make up` twice while the head starts the training; the third `make up` completes."""
    # This change starts the training again.
    config = {**context.config, "numEnvRunners": "2"}
    # A start ends with saving results: none completes before the next `make up` looks at it.
    with head_commands.saving_does(context.head, "/bin/sleep infinity"):
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
    context.up_doing()
    left = left_alone.watchdog_stays_away(context)
    return f"the third `make up` started the training, the same MLflow run; {left}"


def queue_rule(context: Context, driver: PulumiCli) -> str:
    """Changes a rule of the queue in the project, runs `up`, and looks at what still runs."""
    head, file = context.head, driver.project.folder / POLL_FILE
    training, reloads = context.training.processes(), _queue_reloads(head)
    text = file.read_text()
    if text.count(POLL) != 1:
        raise UnexpectedError(f"{POLL!r} is there {text.count(POLL)} times")
    file.write_text(text.replace(POLL, OTHER_POLL))
    context.up_in_place(RUN_COMMAND_CHANGED)
    if OTHER_POLL not in head.run("cat", f"{SOFTWARE}/{POLL_FILE}").stdout:
        raise UnexpectedError(f"{POLL_FILE} has not changed on the head")
    seconds = until(lambda: _queue_reloads(head) > reloads, 60, "the queue loads its new version")
    context.training.continues(60)
    if ended := training - context.training.processes():
        raise UnexpectedError(f"ended: {', '.join(sorted(ended))}")
    context.check_same_run()
    return (
        f"one run command; the queue loaded its new version {seconds:.0f} s later, "
        f"all {len(training)} processes of the training continued"
    )


def _queue_reloads(head: Machine) -> int:
    return head_commands.queue_log(head).count(head_commands.QUEUE_RELOADED)


def failing_boot(context: Context) -> str:
    """Adds an apt package that does not exist: the machines are replaced and fail to boot.

    Nobody looks: three hours later, the head deallocates itself.
    """
    result = context.up(aptPackages=json.dumps([MISSING_PACKAGE]))
    if MISSING_PACKAGE not in result.error:
        raise UnexpectedError(result.error or "`up` succeeded")
    replaced = {kind for operation, kind in result.operations if operation == "replace"}
    why = min((line for line in result.error.splitlines() if MISSING_PACKAGE in line), key=len)
    off = left_alone.watchdog_deallocates(context)
    return f"{', '.join(sorted(replaced))} replaced; then: {why.strip()}; {off}"


def destroy(context: Context) -> str:
    (account,) = all_of(Backend().resources(), "StorageAccount").values()
    context.account = account.inputs["accountName"]
    kept = sorted(resource.kind for resource in left_by_destroy(context).values())
    if kept != KEPT:
        raise UnexpectedError(f"left: {', '.join(kept)}")
    return f"left: {', '.join(kept)}"


def left_by_destroy(context: Context) -> Resources:
    """Runs `destroy`, which must leave no machine; returns the resources that are left."""
    result = context.driver.destroy()
    if result.error:
        raise UnexpectedError(result.error)
    if machines := all_machines():
        raise UnexpectedError(f"left: {', '.join(machine.name for machine in machines)}")
    return Backend().resources()


def _execution() -> Properties:
    """Returns what Azure knows of the last start of the training."""
    (view,) = [
        command.instance_view
        for command in all_of(Backend().resources(), RUN_COMMAND).values()
        if command.inputs["runCommandName"] == TRAINING
    ]
    return view


def _wait_for_another(earlier: str) -> None:
    until(lambda: _execution()["executionId"] != earlier, 120, "another start of the training")
