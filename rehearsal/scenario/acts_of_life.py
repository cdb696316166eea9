"""The acts of the scenario `life`, in order: from the first `up` to what `destroy` leaves."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from payload.parcel import experiment_name
from rehearsal.backend import Backend
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.host_paths import ROOT
from rehearsal.scenario import (
    head_commands,
    machine_faults,
    own_environment,
    read_only_acts,
    stack_changes,
)
from rehearsal.scenario.context import IMAGE_WITH_ENVIRONMENT, Context
from rehearsal.scenario.laptop import Volley
from rehearsal.scenario.limited_network import limited_network
from rehearsal.scenario.outcomes import Outcomes, UnexpectedError
from rehearsal.scenario.read_only_acts import ports_as_declared
from rehearsal.scenario.role_faults import roles_removed
from rehearsal.scenario.training_watch import NodeWatch, until
from rehearsal.scenario.unsupported_properties import unsupported_properties

NODES = "head and workers in Ray; none of its tasks gets a machine's identity"
LOOPBACK = "dashboard and MLflow listen there only, the dashboard with a token"
ROLES_REMOVED = "nothing is saved, no worker joins; both work when the roles are back"
OWN_ENVIRONMENT = "it learns from a window; its env runners on workers have X servers"
LIMITED_NETWORK = "a twentieth of Azure's is enough for 9 times what two cores train"
QUEUE_RULE = "one run command: no machine is touched, no training stops"
OPERATED = "`volley` submits, stops, resumes and pulls a second experiment"
UP_KILLED = "twice; then `make up` starts the training"
FAILING_BOOT = "`up` names the package; left alone, the head deallocates itself"
SECOND = "second"
EXPERIMENT = ROOT / "rehearsal/scenario/second_experiment.yaml"
STARTS_IN_S = 180.0


def run_life(context: Context, outcomes: Outcomes) -> list[str]:
    """Runs the acts, which need the first one; returns what was declared and not rehearsed."""
    act, driver = outcomes.act, context.driver
    packages = json.dumps(own_environment.STACK_PACKAGES)
    up = partial(stack_changes.up, image=IMAGE_WITH_ENVIRONMENT, aptPackages=packages)
    if not act("up", "every resource is made, the training runs", up, context):
        return []
    unsupported = unsupported_properties(Backend().resources())
    with NodeWatch(context.head) as nodes:
        act("nodes", NODES, read_only_acts.nodes_join, nodes)
        act("metrics", "through the tunnel of the outputs", read_only_acts.metrics, context)
        act("loopback", LOOPBACK, read_only_acts.loopback, context)
        act("ports", "exactly the declared ones are open", ports_as_declared)
        before, _ = context.training.throughput()
        for name, expected, fault in machine_faults.WORKER_FAULTS:
            act(name, expected, fault, context.training, nodes, before)
        scaled = "by a run command alone; Ray's autoscaler asks Azure"
        act("more workers", scaled, stack_changes.scale, context, nodes, 3)
        act("fewer workers", scaled, stack_changes.scale, context, nodes, 2)
        act("limited network", LIMITED_NETWORK, limited_network, context)
        act("roles removed", ROLES_REMOVED, roles_removed, context, nodes)
    act("failed start", "the next `up` starts the training", stack_changes.failed_start, context)
    if isinstance(driver, PulumiCli):
        act("up killed", UP_KILLED, stack_changes.up_killed, context, driver)
        act("queue rule", QUEUE_RULE, stack_changes.queue_rule, context, driver)
        act("operate", OPERATED, operate, context, driver)
    act("own environment", OWN_ENVIRONMENT, own_environment.own_environment, context)
    act("experiment", "only the training starts again", stack_changes.experiment, context)
    act("head reboots", machine_faults.HEAD_REBOOTS, machine_faults.head_reboots, context)
    act("failing boot", FAILING_BOOT, stack_changes.failing_boot, context)
    act("destroy", "only the results are left", stack_changes.destroy, context)
    act("results", "MLflow opens them on the laptop", read_only_acts.results, context)
    return unsupported


def operate(context: Context, driver: PulumiCli) -> str:
    """Submits a second experiment, reads its log, stops and resumes it, and pulls its results."""
    volley = Volley(context.laptop, driver.project)
    first = experiment_name(Path(context.config["experiment"]))
    volley.ask("submit", str(EXPERIMENT), "--name", SECOND)
    try:
        return _operate(context, volley, first)
    except BaseException:
        volley.ask("stop", SECOND)  # The following acts need the whole cluster.
        raise


def _operate(context: Context, volley: Volley, first: str) -> str:
    seconds = _wait_until_both_train(context, first)
    if volley.training() != {first, SECOND}:
        raise UnexpectedError("volley status does not show two experiments that train")
    if "Training started after" not in volley.type("logs", SECOND, "--lines", "200"):
        raise UnexpectedError(f"volley logs {SECOND} does not show that it trains")
    volley.ask("stop", SECOND)
    pulled = volley.ask("pull", SECOND)
    volley.ask("resume", SECOND)
    _wait_until_both_train(context, first)
    volley.ask("stop", SECOND)
    pulled_again = volley.ask("pull", SECOND)
    runs = list((volley.folder / "results" / SECOND / "runs").iterdir())
    if len(runs) != 1 or not any(runs[0].glob("checkpoints/checkpoint_*")):
        raise UnexpectedError(f"pulled {', '.join(run.name for run in runs) or 'nothing'}")
    if volley.training() != {first}:
        raise UnexpectedError(f"{first} does not train any more")
    return (
        f"two trained {seconds:.0f} s after the command; "
        f"pulled {pulled['files']} files, then {pulled_again['files']} new ones"
    )


def _wait_until_both_train(context: Context, first: str) -> float:
    """Waits by reading the head's disk: `volley status` would take the CPUs from the training."""

    def both_train() -> bool:
        states = head_commands.states(context.head)
        return {states.get(first), states.get(SECOND)} == {"TRAINING"}

    return until(both_train, STARTS_IN_S, f"{first} and {SECOND} train side by side")
