"""The scenario `queue`: three experiments at once on one worker, operated from the laptop.

Workers come and go while machines and connections break; then the cluster sleeps and is woken.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter

from payload.parcel.experiment_files import experiment_name
from rehearsal.addresses import INTERNET_GATEWAY
from rehearsal.azure.resources.resource_kinds import all_of
from rehearsal.azure.resources.scale_set_machines import machines_of
from rehearsal.backend import Backend
from rehearsal.drivers.driver import Driver
from rehearsal.drivers.pulumi_cli import PulumiCli
from rehearsal.machines.machine import all_machines
from rehearsal.network.bridges import INTERNET
from rehearsal.paths import ROOT
from rehearsal.scenario import faults, stack_changes
from rehearsal.scenario.context import IMAGE_WITH_ENVIRONMENT, Context
from rehearsal.scenario.laptop import runs
from rehearsal.scenario.outcomes import Outcomes, UnexpectedError
from rehearsal.scenario.training_watch import AS_RAY, PYTHON, NodeWatch, until
from rehearsal.scenario.volley import Volley
from rehearsal.shell import run

EXPERIMENT = ROOT / "rehearsal/scenario/short_experiment.yaml"
FIRST, SECOND, THIRD = experiment_name(EXPERIMENT), "second", "third"
"""The first one is the stack's."""
FOURTH, FIFTH = "fourth", "fifth"
SESSION = ROOT / "results/rehearsal-session.txt"
"""What was typed and said."""
WORKERS = 3
IDLE_MINUTES = 1
COMES_S = 240.0
ENDS_S = 600.0
MANY, STATUS_S, MEMORY_MIB = 200, 2.0, 300
LONG_EXPERIMENT, LONG = ROOT / "rehearsal/scenario/second_experiment.yaml", "long"
IN_STORE = (*AS_RAY, "PYTHONPATH=/usr/local/lib/volley/software", PYTHON, "-c")
SERVICES = ("head.queue", "watch_scheduled_events.py")
"""Those that run on the head all the time, besides Ray and MLflow."""
SUBMIT_MANY = """
import shutil
from head.queue.record import Record
from head.queue.store import Store
store = Store()
like = store.get("{like}")
for number in range({count}):
    content = store.root / f".many-{{number}}"
    shutil.copytree(store.folder(like.name), content)
    name = f"many-{{number}}"
    store.submit(Record(name, digest=name, key=name, needs=like.needs), content, False)
"""
"""Run on the head: over SSH each takes a second."""
STOP_MANY = """
from head.queue.store import Store
for number in range({count}):
    Store().stop(f"many-{{number}}")
"""
CUT_OFF_S = 25.0
"""ssh notices a lost connection after 15 s."""
UNDER_WAY = {"STARTING", "TRAINING"}


def run_queue(context: Context, outcomes: Outcomes) -> list[str]:
    """Runs all acts, in order."""
    act = outcomes.act
    if not act("up", "one worker, and the stack's own experiment trains", up, context):
        return []
    pulumi = _pulumi(context.driver)
    volley = Volley(context.laptop, pulumi.project)
    volley.record_to(SESSION)
    volley.record("make up", pulumi.said)
    submitted = "two at once, one of them cut off and repeated; each is there once"
    act("submit", submitted, submit, volley)
    act(
        "head killed",
        "while it scales: it boots, and the queue continues",
        head_killed,
        context,
    )
    with NodeWatch(context.head) as nodes:
        grown = f"{WORKERS} workers, two experiments side by side"
        act("growth", grown, growth, volley, nodes)
        act("evicted at work", "another one comes", evicted_at_work, context, nodes)
        act("logs -f", "cut off: one line, and training continues", logs_cut_off, volley)
        act("all finish", "each with one MLflow run", all_finish, context, volley)
        act("evicted idle", "no other one comes", evicted_idle)
        act("idle", f"after {IDLE_MINUTES} min one worker is left", idle)
    act(
        "two hundred", f"`volley status` in {STATUS_S:g} s, {MEMORY_MIB} MiB", many, context, volley
    )
    act("sleep", "one trains and one is queued; no machine runs", sleep, context, volley)
    if act("start", "`volley start`: both continue and finish", start, context, volley):
        act("sleep again", "with nothing to do, at once", sleep_again, context, volley)
    act("destroy", "nothing but the results", stack_changes.destroy, context)
    volley.record("make down", pulumi.said)
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
    """Meanwhile Azure throttles, and an answer of it is lost."""
    with faults.management_faults() as azure:
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
    listed = [one["name"] for one in volley.ask("status")["experiments"]]
    if sorted(listed) != sorted([FIRST, SECOND, THIRD]):
        raise UnexpectedError(f"experiments: {', '.join(listed)}")
    return f"{', '.join(listed)}"


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
    both = until(lambda: _count(volley, "TRAINING") == 2, 120, "two that train")
    volley.say("status")
    _check_no_stranger()
    return f"joined after {joined:.0f} s, two train {both:.0f} s later"


def logs_cut_off(volley: Volley) -> str:
    name = next(name for name, state in _states(volley).items() if state == "TRAINING")
    following = volley.begin("logs", name, "--follow")
    time.sleep(3.0)
    cable = ["ip", "-n", INTERNET, "link", "set", "eth0"]
    run(*cable, "down")
    try:
        _, said = following.communicate(timeout=CUT_OFF_S)
    finally:
        run(*cable, "up")
        run("ip", "-n", INTERNET, "route", "add", "default", "via", INTERNET_GATEWAY)
    if following.returncode != 2 or len(said.strip().splitlines()) != 1:
        raise UnexpectedError(f"exit code {following.returncode}: {said.strip()}")
    if _states(volley)[name] not in {"TRAINING", "FINISHED"}:
        raise UnexpectedError(f"{name}: {_states(volley)[name]}")
    return said.strip()


def evicted_at_work(context: Context, nodes: NodeWatch) -> str:
    everybody = set(nodes.alive)
    victim = faults.worker_that_trains(context.training)
    left = faults.evict(victim)
    until(lambda: victim.name not in nodes.alive, 60, f"{victim.name} leaves")
    came = until(lambda: bool(nodes.alive - everybody), COMES_S, "another worker")
    (new,) = nodes.alive - everybody
    return f"{victim.name} left after {left:.0f} s, {new} joined {came:.0f} s later"


def all_finish(context: Context, volley: Volley) -> str:
    names = {FIRST, SECOND, THIRD}
    seconds = until(lambda: _finished(volley) >= names, ENDS_S, "all finish")
    volley.say("status")
    volley.say("pull", SECOND)
    runs_seen = _check_runs(context, len(names))
    starts = {name: one["attempts"] for name, one in volley.experiments().items()}
    told = ", ".join(f"{name} {count}" for name, count in sorted(starts.items()))
    return f"after {seconds:.0f} s; starts: {told}; MLflow: {runs_seen}"


def evicted_idle() -> str:
    victim, before = all_machines()[-1], _azures_machines()
    faults.evict(victim)
    time.sleep(30.0)
    if new := _azures_machines() - before:
        raise UnexpectedError(f"{', '.join(sorted(new))} came")
    return f"{victim.name} left, none came"


def idle() -> str:
    limit = 60.0 * IDLE_MINUTES + 120.0
    seconds = until(lambda: len(all_machines()) == 2, limit, "one worker is left")
    _check_no_stranger()
    return f"after {seconds:.0f} s"


def many(context: Context, volley: Volley) -> str:
    """One trains, and two hundred are queued, of which one may fit beside it; all are stopped."""
    with faults.management_faults() as azure:
        azure.machines = 1
    volley.ask("submit", str(LONG_EXPERIMENT), "--name", LONG)
    until(lambda: _states(volley).get(LONG) == "TRAINING", 120, f"{LONG} trains")
    context.head.run(*IN_STORE, SUBMIT_MANY.format(like=LONG, count=MANY), timeout_s=240)
    time.sleep(30.0)  # The queue looks at all of them every second.
    begun = time.monotonic()
    answer = volley.ask("status")
    took = time.monotonic() - begun
    queued = [one["state"] for one in answer["experiments"]].count("QUEUED")
    mebibytes = _memory(context)
    context.head.run(*IN_STORE, STOP_MANY.format(count=MANY), timeout_s=240)
    volley.ask("stop", LONG)
    until(lambda: _states(volley).get(LONG) == "STOPPED", 120, f"{LONG} stops")
    until(lambda: not UNDER_WAY & set(_states(volley).values()), 120, "the others stop")
    seen = f"`volley status` in {took:.1f} s, {mebibytes:.0f} MiB with {queued} queued"
    if took > STATUS_S or mebibytes > MEMORY_MIB or queued < MANY - 1:
        raise UnexpectedError(seen)
    return seen


def _memory(context: Context) -> float:
    """Returns what the head's services have in memory, in MiB: containers have no cgroup for it."""
    found = context.head.run("ps", "-eo", "rss,args").stdout.splitlines()
    used = [line.split()[0] for line in found if any(name in line for name in SERVICES)]
    return sum(map(int, used)) / 1024


def sleep(context: Context, volley: Volley) -> str:
    with faults.management_faults() as azure:
        azure.machines, azure.forbidden = 1, 2
    for name in (FOURTH, FIFTH):
        volley.ask("submit", str(EXPERIMENT), "--name", name)
    until(lambda: _count(volley, "TRAINING") == 1, COMES_S, "one that trains")
    states = _states(volley)
    volley.say("status")
    seconds = _fall_asleep(context, volley, "--now")
    with faults.management_faults() as azure:
        azure.machines = None
    told = ", ".join(f"{name} {states[name]}" for name in (FOURTH, FIFTH))
    return f"{told}; the head was off after {seconds:.0f} s"


def start(context: Context, volley: Volley) -> str:
    began = time.monotonic()
    volley.say("start")
    woken = time.monotonic() - began
    until(lambda: UNDER_WAY & set(_states(volley).values()), 120, "an experiment that trains")
    trains = time.monotonic() - began
    until(lambda: _finished(volley) >= {FOURTH, FIFTH}, ENDS_S, "both finish")
    runs_seen = _check_runs(context, 5)
    return f"answers after {woken:.0f} s, one starts after {trains:.0f} s; MLflow: {runs_seen}"


def sleep_again(context: Context, volley: Volley) -> str:
    return f"the head was off after {_fall_asleep(context, volley):.0f} s"


def _fall_asleep(context: Context, volley: Volley, *options: str) -> float:
    volley.say("cost")
    volley.say("sleep", *options)
    off = until(lambda: context.head.power == "off", 240, "the head is deallocated")
    if left := _azures_machines():
        raise UnexpectedError(f"left: {', '.join(sorted(left))}")
    return off


def _states(volley: Volley) -> dict[str, str]:
    """Returns the experiments' states; nothing while the head does not answer."""
    try:
        return {name: one["state"] for name, one in volley.experiments().items()}
    except (UnexpectedError, subprocess.TimeoutExpired):
        return {}


def _count(volley: Volley, state: str) -> int:
    return list(_states(volley).values()).count(state)


def _finished(volley: Volley) -> set[str]:
    states = _states(volley)
    if failed := [name for name, state in states.items() if state == "FAILED"]:
        raise UnexpectedError(f"{', '.join(failed)} failed")
    return {name for name, state in states.items() if state == "FINISHED"}


def _check_runs(context: Context, finished: int) -> str:
    """Returns the statuses of all MLflow runs.

    A stopped run is KILLED, and so is one that was cut off before its first checkpoint.

    Raises:
        UnexpectedError: Not as many have finished, or one seems to train still.
    """
    with context.tunnel() as laptop:
        found = Counter(one["info"]["status"] for one in runs(laptop, context.outputs["mlflow"]))
    told = ", ".join(f"{count} {status}" for status, count in sorted(found.items()))
    if found["FINISHED"] != finished or found.keys() - {"FINISHED", "KILLED"}:
        raise UnexpectedError(f"MLflow: {told}")
    return told


def _azures_machines() -> set[str]:
    """Returns the names of the workers that Azure has."""
    (scale_set,) = all_of(Backend().resources(), "VirtualMachineScaleSet").values()
    return {one.name for one in machines_of(scale_set, time.time()) if one.gone is None}


def _check_no_stranger() -> None:
    """Waits until the machines here are those that Azure knows: a change takes a moment."""

    def same() -> bool:
        return {one.name for one in all_machines()} == {"head", *_azures_machines()}

    until(same, 30, "the machines that Azure knows")


def _pulumi(driver: Driver) -> PulumiCli:
    if not isinstance(driver, PulumiCli):
        raise UnexpectedError("`volley` reads the stack's outputs by pulumi, which is not here")
    return driver
