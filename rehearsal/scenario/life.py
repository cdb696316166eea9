"""The scenario `life`: a cluster's whole life, from the first `up` to what `destroy` leaves."""

from __future__ import annotations

import json
from functools import partial

from rehearsal.backend import Backend
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.scenario import checks, faults, own_environment, role_faults, stack_changes
from rehearsal.scenario import operate as operating
from rehearsal.scenario.context import IMAGE_WITH_ENVIRONMENT, Context
from rehearsal.scenario.limited_network import limited_network
from rehearsal.scenario.open_ports import ports_as_declared
from rehearsal.scenario.outcomes import Outcomes
from rehearsal.scenario.training_watch import NodeWatch
from rehearsal.scenario.unsupported_properties import unsupported_properties

ROLES_REMOVED = "nothing is saved, no worker joins; both work when they are back"
OWN_ENVIRONMENT = "it learns from a window; its env runners on workers have X servers"
LIMITED_NETWORK = "a twentieth of Azure's carries 10 times what two cores train"
OPERATED = "`volley` submits, stops, resumes and pulls a second experiment"
UP_KILLED = "twice; then `make up` starts the training"


def run_life(context: Context, outcomes: Outcomes) -> list[str]:
    """Runs all acts, in order; without a cluster there is nothing more to see.

    Returns:
        What was declared and not rehearsed.
    """
    act = outcomes.act
    packages = json.dumps(own_environment.PACKAGES)
    up = partial(stack_changes.up, image=IMAGE_WITH_ENVIRONMENT, aptPackages=packages)
    if not act("up", "every resource is made, the training runs", up, context):
        return []
    unsupported = unsupported_properties(Backend().resources())
    with NodeWatch(context.head) as nodes:
        act("nodes", "head and workers in Ray", checks.nodes_join, nodes)
        act("metrics", "through the tunnel of the outputs", checks.metrics, context)
        act("loopback", "dashboard and MLflow, the first by token", checks.loopback, context)
        act("ports", "exactly the declared ones, each to each", ports_as_declared)
        before, _ = context.training.throughput()
        for fault in faults.WORKER_FAULTS:
            act(fault.name, fault.expected, fault.act, context.training, nodes, before)
        only = "by a run command alone; Ray's autoscaler asks Azure"
        act("more workers", only, stack_changes.scale, context, nodes, 3)
        act("fewer workers", only, stack_changes.scale, context, nodes, 2)
        act("limited network", LIMITED_NETWORK, limited_network, context)
        act("roles removed", ROLES_REMOVED, role_faults.roles_removed, context, nodes)
    act("failed start", "the next `up` starts the training", stack_changes.failed_start, context)
    if isinstance(context.driver, PulumiCli):
        act("up killed", UP_KILLED, stack_changes.up_killed, context, context.driver)
        act("operate", OPERATED, operating.operate, context, context.driver)
    act("own environment", OWN_ENVIRONMENT, own_environment.own_environment, context)
    act("experiment", "only the training starts again", stack_changes.experiment, context)
    act("head reboots", faults.HEAD_REBOOTS, faults.head_reboots, context)
    act("failing boot", "`up` tells the package's name", stack_changes.failing_boot, context)
    act("destroy", "nothing but the results", stack_changes.destroy, context)
    act("results", "MLflow opens them on the laptop", checks.results, context)
    return unsupported
