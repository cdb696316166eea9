"""The acts of the scenario `elastic`, in order: Ray's autoscaler makes and deletes workers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from payload.parcel import experiment_name
from rehearsal.azure.resources.resource_kinds import all_of
from rehearsal.backend import Backend
from rehearsal.drivers.driver import Operation
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.host_shell import CommandError
from rehearsal.machines.nspawn_machine import all_machines
from rehearsal.scenario import (
    head_commands,
    left_alone,
    machine_faults,
    read_only_acts,
    stack_changes,
)
from rehearsal.scenario.containers import containers
from rehearsal.scenario.context import IMAGE_WITH_ENVIRONMENT, RUN_COMMAND_CHANGED, Context
from rehearsal.scenario.laptop import Volley
from rehearsal.scenario.outcomes import Outcomes, UnexpectedError
from rehearsal.scenario.scripts import scripts
from rehearsal.scenario.training_watch import NodeWatch, until

WORKERS = 2
ENV_RUNNERS = 2
"""Each of three machines has one CPU for Ray, and the driver takes one."""
IDLE_MINUTES = 1
RULES_CHANGED: tuple[Operation, str] = ("update", "AutoscaleSetting")
LIMITS_CHANGED: tuple[Operation, str] = ("update", "VirtualMachine")
ROLES_DELETED: tuple[Operation, str] = ("delete", "RoleAssignment")
COMES_S = 180.0
"""The autoscaler acts every 10 s; Azure's stand-in takes seconds, and a boot half a minute."""
LEAVES_S = 60.0 * IDLE_MINUTES + 90.0
ASLEEP_S = 60.0 * IDLE_MINUTES + 180.0
"""The head checks every minute."""
GROWN = f"{WORKERS} workers come, and the training has them without a restart"
EVICTED = "another worker comes, the training continues"
IDLE = f"after {IDLE_MINUTES} idle min no worker is left"
SCRIPTS = "Ray makes a worker for the tasks of one; they finish, one fails with its exit code"
CONTAINER = "an environment that exists only in an image learns on a worker that comes for it"
RESUMED = "the workers come again"
ASLEEP = f"after {IDLE_MINUTES} idle min no machine runs"
AWAKE = "the head boots from its disk, the workers come, the run continues"
HEAD_LOST = "without its lease Azure deletes the workers; the head comes back, and they do"
AZURE_SCALES = "no machine is changed, the head loses its roles, the training continues"
SAME = "nothing changes, no worker is deleted"


def run_elastic(context: Context, outcomes: Outcomes) -> list[str]:
    """Runs the acts; the scenario `life` reports what is declared and not rehearsed."""
    act = outcomes.act
    up = partial(
        stack_changes.up,
        image=IMAGE_WITH_ENVIRONMENT,
        minWorkers="0",
        maxWorkers=str(WORKERS),
        containers="true",
        idleMinutes=str(IDLE_MINUTES),
    )
    if not act("up", "the head trains at once, without workers", up, context):
        return []
    act("metrics", "through the tunnel of the outputs", read_only_acts.metrics, context)
    with NodeWatch(context.head) as nodes:
        if act("growth", GROWN, growth, context, nodes):
            act("spot eviction", EVICTED, eviction, context, nodes)
            act("up again", SAME, up_again, context)
            act("idle", IDLE, idle, context, nodes)
            if isinstance(context.driver, PulumiCli):
                volley = Volley(context.laptop, context.driver.project)
                act("container", CONTAINER, containers, context, volley)
                act("script", SCRIPTS, scripts, context, volley)
            act("resume", RESUMED, resume, context, nodes)
    if act("sleep", ASLEEP, sleep, context):
        act("wake", AWAKE, wake, context)
        act("head lost", HEAD_LOST, head_lost, context)
        act("azure scales", AZURE_SCALES, azure_scales, context)
    act("destroy", "only the results are left", stack_changes.destroy, context)
    return []


def growth(context: Context, nodes: NodeWatch) -> str:
    before = _experiment(context)
    seen = _grow(context, nodes)
    _check_same_job(context, before)
    return f"{seen}, the same job"


def eviction(context: Context, nodes: NodeWatch) -> str:
    before = _experiment(context)
    seen = machine_faults.evict_at_work(context, nodes, COMES_S)
    _wait_for_env_runners(context)
    _check_same_job(context, before)
    return f"{seen}, the same job"


def up_again(context: Context) -> str:
    return f"{context.up_in_place()} machines as before"


def idle(context: Context, nodes: NodeWatch) -> str:
    head_commands.stop(context.head, _experiment(context)["name"])
    left = until(lambda: nodes.alive == {"head"}, LEAVES_S, "the workers leave Ray")
    gone = until(lambda: len(all_machines()) == 1, 60, "the workers are deleted")
    return f"they left Ray after {left:.0f} s, deleted {gone:.0f} s later; the head stays"


def resume(context: Context, nodes: NodeWatch) -> str:
    head_commands.resume(context.head, _experiment(context)["name"])
    return _grow(context, nodes)


def sleep(context: Context) -> str:
    """Changes sleepAfterMinutes alone, then stops the experiment."""
    context.up_doing(RUN_COMMAND_CHANGED, sleepAfterMinutes=str(IDLE_MINUTES))
    head_commands.stop(context.head, _experiment(context)["name"])
    off = until(lambda: context.head.power == "off", ASLEEP_S, "the head is deallocated")
    machine_faults.check_head_is_alone()
    return f"the head was off after {off:.0f} s, without workers"


def wake(context: Context) -> str:
    (head_id,) = all_of(Backend().resources(), "VirtualMachine")
    Backend().start(head_id)
    booted = until(context.head.cloud_init_done, 120, "the head is up again")
    until(lambda: head_commands.queue_is_active(context.head), 120, "the queue runs")
    with NodeWatch(context.head) as nodes:
        resumed = resume(context, nodes)
    context.check_same_run()
    return f"up after {booted:.0f} s; {resumed}; the same MLflow run"


def head_lost(context: Context) -> str:
    lost = left_alone.workers_without_a_head(context)
    grown = _wait_for_env_runners(context, COMES_S)
    context.check_same_run()
    return f"{lost}, with {ENV_RUNNERS} env runners {grown:.0f} s later; the same MLflow run"


def azure_scales(context: Context) -> str:
    """Changes `scaling` alone: Ray starts again, without its autoscaler."""
    changes = {"scaling": "cpu", "minWorkers": str(WORKERS)}
    context.up_in_place(
        RULES_CHANGED, LIMITS_CHANGED, ROLES_DELETED, RUN_COMMAND_CHANGED, **changes
    )
    grown = _wait_for_env_runners(context, 120)
    context.check_same_run()
    return f"{ENV_RUNNERS} env runners {grown:.0f} s after `up`, the same MLflow run"


def _experiment(context: Context) -> dict[str, Any]:
    """Returns the stack's own experiment."""
    name = experiment_name(Path(context.config["experiment"]))
    experiments = context.training.experiments()
    return next(experiment for experiment in experiments if experiment["name"] == name)


def _grow(context: Context, nodes: NodeWatch) -> str:
    joined = until(lambda: len(nodes.alive) == 1 + WORKERS, COMES_S, f"{WORKERS} workers")
    grown = _wait_for_env_runners(context)
    return f"joined after {joined:.0f} s, {ENV_RUNNERS} env runners {grown:.0f} s later"


def _wait_for_env_runners(context: Context, timeout_s: float = 90) -> float:
    def all_run() -> bool:
        try:
            return sum(context.training.env_runners().values()) == ENV_RUNNERS
        except CommandError:  # A machine is just being deleted.
            return False

    return until(all_run, timeout_s, f"{ENV_RUNNERS} env runners")


def _check_same_job(context: Context, before: dict[str, Any]) -> None:
    now = _experiment(context)
    if (now["job"], now["attempts"], now["state"]) != (before["job"], 1, "TRAINING"):
        raise UnexpectedError(f"{now['state']}, {now['attempts']} starts, {now['reason']}")
