"""The acts of the scenario `queue`, in order: three experiments share a cluster.

The laptop operates it. Workers come and go while machines and connections break; then the cluster
sleeps and is woken.
"""

from __future__ import annotations

import os
import signal
import time
from functools import partial

from payload.parcel import experiment_name
from rehearsal.addresses import INTERNET_GATEWAY
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.host_paths import ROOT
from rehearsal.host_shell import run
from rehearsal.machines.nspawn_machine import all_machines
from rehearsal.network.bridges import INTERNET
from rehearsal.scenario import head_commands, machine_faults, stack_changes
from rehearsal.scenario.context import IMAGE_WITH_ENVIRONMENT, Context
from rehearsal.scenario.laptop import Volley
from rehearsal.scenario.machine_faults import (
    azure_workers,
    check_only_azures_machines,
    evict_at_work,
)
from rehearsal.scenario.outcomes import Outcomes, UnexpectedError
from rehearsal.scenario.seeds_and_notices import RUNS, secret, seeds
from rehearsal.scenario.training_watch import PROCESS_POLL_S, NodeWatch
from rehearsal.scenario.training_watch import until as wait_until

EXPERIMENT = ROOT / "rehearsal/scenario/short_experiment.yaml"
FIRST, SECOND, THIRD = experiment_name(EXPERIMENT), "second", "third"
"""The stack submits the first."""
FOURTH, FIFTH = "fourth", "fifth"
SESSION = ROOT / "results/rehearsal-session.txt"
"""The commands and what they printed."""
WORKERS = 3
IDLE_MINUTES = 1
COMES_S = 240.0
ENDS_S = 600.0
MANY, STATUS_S, MEMORY_MIB = 200, 2.0, 300
LONG_EXPERIMENT, LONG = ROOT / "rehearsal/scenario/second_experiment.yaml", "long"
CUT_OFF_S = 25.0
"""ssh notices a lost connection after 15 s."""
SEEDS = "nested runs with a metric of the environment; a chat is notified once"
SECRET = "a script gets it, and one file on the head has it; a chat is notified once"
UNDER_WAY = {"STARTING", "TRAINING"}
until = partial(wait_until, pause_s=PROCESS_POLL_S)


def run_queue(context: Context, outcomes: Outcomes) -> list[str]:
    """Runs the acts; if the first one fails, the others have no cluster."""
    act = outcomes.act
    if not act("up", "one worker, and the stack's experiment trains", up, context):
        return []
    pulumi = context.driver
    if not isinstance(pulumi, PulumiCli):
        raise UnexpectedError("`volley` needs the pulumi CLI, which is not on the PATH")
    volley = Volley(context.laptop, pulumi.project)
    volley.record_to(SESSION)
    volley.record("make up", pulumi.output)
    submitted = "two at once, one of them cut off and repeated; each is queued once"
    act("submit", submitted, submit, volley)
    killed = "while it scales: it boots, and the queue continues"
    act("head killed", killed, head_killed, context)
    with NodeWatch(context.head) as nodes:
        grown = f"{WORKERS} workers, two experiments side by side"
        act("growth", grown, growth, volley, nodes)
        act("evicted at work", "another worker comes", evict_at_work, context, nodes, COMES_S)
        act("logs -f", "cut off: one message, and training continues", logs_cut_off, volley)
        act("all finish", "each has one MLflow run", all_finish, context, volley)
        act("evicted idle", "no other worker comes", evicted_idle)
        act("idle", f"after {IDLE_MINUTES} min one worker is left", idle)
    act("seeds", SEEDS, seeds, context, volley)
    act("secret", SECRET, secret, context, volley)
    act(
        "two hundred", f"`volley status` in {STATUS_S:g} s, {MEMORY_MIB} MiB", many, context, volley
    )
    act("sleep", "one trains and one is queued; all machines stop", sleep, context, volley)
    if act("start", "`volley start`: both continue and finish", start, context, volley):
        act("sleep again", "at once, with nothing to do", sleep_again, context, volley)
    act("destroy", "only the results are left", stack_changes.destroy, context)
    volley.record("make down", pulumi.output)
    return []


def up(context: Context) -> str:
    return stack_changes.up(
        context,
        image=IMAGE_WITH_ENVIRONMENT,
        experiment=str(EXPERIMENT),
        minWorkers="1",
        maxWorkers=str(WORKERS),
        idleMinutes=str(IDLE_MINUTES),
        sleepAfterMinutes="0",
    )


def submit(volley: Volley) -> str:
    """Submits while Azure throttles requests and one of its answers is lost."""
    with machine_faults.management_faults() as azure:
        azure.throttled, azure.lost_answers = 2, 1
    words = ("submit", str(EXPERIMENT), "--name")
    volley.ask("status")
    cut_off = volley.begin(*words, THIRD)
    time.sleep(1.0)
    os.killpg(cut_off.pid, signal.SIGKILL)
    cut_off.communicate()
    repeated = volley.begin(*words, THIRD)
    volley.say(*words, SECOND)
    _, problem = repeated.communicate()
    if repeated.returncode != 0:
        raise UnexpectedError(problem)
    volley.say("status")
    names = [experiment["name"] for experiment in volley.ask("status")["experiments"]]
    if sorted(names) != sorted([FIRST, SECOND, THIRD]):
        raise UnexpectedError(f"experiments: {', '.join(names)}")
    return ", ".join(names)


def head_killed(context: Context) -> str:
    head = context.head
    head.kill()
    start = time.monotonic()
    head.start()
    until(head.cloud_init_done, 120, "the head is up again")
    context.training.continues(180)
    return f"trains again after {time.monotonic() - start:.0f} s"


def growth(volley: Volley, nodes: NodeWatch) -> str:
    joined = until(lambda: len(nodes.alive) == 1 + WORKERS, COMES_S, f"{WORKERS} workers")
    both = until(lambda: volley.training_count() == 2, 120, "two that train")
    volley.say("status")
    check_only_azures_machines()
    return f"joined after {joined:.0f} s, two train {both:.0f} s later"


def logs_cut_off(volley: Volley) -> str:
    name = next(iter(volley.training()))
    following = volley.begin("logs", name, "--follow")
    time.sleep(3.0)
    cable = ["ip", "-n", INTERNET, "link", "set", "eth0"]
    run(*cable, "down")
    try:
        _, message = following.communicate(timeout=CUT_OFF_S)
    finally:
        run(*cable, "up")
        run("ip", "-n", INTERNET, "route", "add", "default", "via", INTERNET_GATEWAY)
    message = message.strip()
    if following.returncode != 2 or len(message.splitlines()) != 1:
        raise UnexpectedError(f"exit code {following.returncode}: {message}")
    state = volley.states()[name]
    if state not in {"TRAINING", "FINISHED"}:
        raise UnexpectedError(f"{name}: {state}")
    return message


def all_finish(context: Context, volley: Volley) -> str:
    names = {FIRST, SECOND, THIRD}
    seconds = until(lambda: volley.finished() >= names, ENDS_S, "all finish")
    volley.say("status")
    volley.say("pull", SECOND)
    runs_seen = context.check_runs(len(names))
    experiments = sorted(volley.experiments().items())
    starts = ", ".join(f"{name} {experiment['attempts']}" for name, experiment in experiments)
    return f"after {seconds:.0f} s; starts: {starts}; MLflow: {runs_seen}"


def evicted_idle() -> str:
    victim, before = all_machines()[-1], azure_workers()
    machine_faults.evict(victim)
    time.sleep(30.0)
    if new := azure_workers() - before:
        raise UnexpectedError(f"{', '.join(sorted(new))} came")
    return f"{victim.name} left, none came"


def idle() -> str:
    limit = 60.0 * IDLE_MINUTES + 120.0
    seconds = until(lambda: len(all_machines()) == 2, limit, "one worker is left")
    check_only_azures_machines()
    return f"after {seconds:.0f} s"


def many(context: Context, volley: Volley) -> str:
    """Queues two hundred experiments while one trains; at most one of them fits beside it."""
    with machine_faults.management_faults() as azure:
        azure.machines = 1
    volley.ask("submit", str(LONG_EXPERIMENT), "--name", LONG)
    until(lambda: volley.states().get(LONG) == "TRAINING", 120, f"{LONG} trains")
    head_commands.submit_copies(context.head, LONG, MANY)
    time.sleep(30.0)  # The queue looks at all of them every second.
    begun = time.monotonic()
    answer = volley.ask("status")
    seconds = time.monotonic() - begun
    queued = [experiment["state"] for experiment in answer["experiments"]].count("QUEUED")
    mebibytes = head_commands.services_memory_mib(context.head)
    head_commands.stop_copies(context.head, MANY)
    volley.ask("stop", LONG)
    until(lambda: volley.states().get(LONG) == "STOPPED", 120, f"{LONG} stops")
    until(lambda: not UNDER_WAY & set(volley.states().values()), 120, "the others stop")
    seen = f"`volley status` in {seconds:.1f} s, {mebibytes:.0f} MiB with {queued} queued"
    if seconds > STATUS_S or mebibytes > MEMORY_MIB or queued < MANY - 1:
        raise UnexpectedError(seen)
    return seen


def sleep(context: Context, volley: Volley) -> str:
    with machine_faults.management_faults() as azure:
        azure.machines, azure.forbidden = 1, 2
    for name in (FOURTH, FIFTH):
        volley.ask("submit", str(EXPERIMENT), "--name", name)
    until(lambda: volley.training_count() == 1, COMES_S, "one that trains")
    before = volley.states()
    volley.say("status")
    seconds = _fall_asleep(context, volley, "--now")
    with machine_faults.management_faults() as azure:
        azure.machines = None
    seen = ", ".join(f"{name} {before[name]}" for name in (FOURTH, FIFTH))
    return f"{seen}; the head was off after {seconds:.0f} s"


def start(context: Context, volley: Volley) -> str:
    began = time.monotonic()
    volley.say("start")
    answers = time.monotonic() - began
    until(lambda: UNDER_WAY & set(volley.states().values()), 120, "an experiment that trains")
    trains = time.monotonic() - began
    until(lambda: volley.finished() >= {FOURTH, FIFTH}, ENDS_S, "both finish")
    runs_seen = context.check_runs(5 + RUNS)
    return f"answers after {answers:.0f} s, one starts after {trains:.0f} s; MLflow: {runs_seen}"


def sleep_again(context: Context, volley: Volley) -> str:
    return f"the head was off after {_fall_asleep(context, volley):.0f} s"


def _fall_asleep(context: Context, volley: Volley, *options: str) -> float:
    volley.say("cost")
    volley.say("sleep", *options)
    off = until(lambda: context.head.power == "off", 240, "the head is deallocated")
    if left := azure_workers():
        raise UnexpectedError(f"left: {', '.join(sorted(left))}")
    return off
