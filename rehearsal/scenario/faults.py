"""What goes wrong with the machines, and that the training survives it.

A worker loses its power, is evicted or loses its network; the head reboots while a worker is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from rehearsal.azure.management.management_faults import Faults, FaultsFile
from rehearsal.azure.management.management_machines import SetMachines
from rehearsal.azure.management.management_service import FAULTS
from rehearsal.azure.metadata import metadata_state
from rehearsal.azure.resources.resource_kinds import all_of
from rehearsal.backend import Backend
from rehearsal.machines.machine import Machine, all_machines
from rehearsal.network import bridges
from rehearsal.paths import MANAGEMENT, METADATA
from rehearsal.scenario.context import WORKERS, Context
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import NodeWatch, Training, until

NOTICED_S = 12.0
"""Ray must know that a worker is gone."""
BACK_S = 30.0
"""The throughput must be back."""
ENOUGH = 0.7
"""Of the throughput before; a machine with others on it is not steadier than that."""
NOTICE_S = 30.0
"""Azure's notice of an eviction."""
LEFT_S = 5.0
"""An evicted worker must have left Ray; one that systemd has to kill takes TimeoutStopSec."""
UNPLUGGED_S = 20.0


@dataclass(frozen=True)
class WorkerFault:
    """A fault of one worker."""

    name: str
    expected: str
    act: Callable[[Training, NodeWatch, float], str]
    """Takes the throughput of the whole cluster."""


def worker_killed(training: Training, nodes: NodeWatch, before: float) -> str:
    """A worker loses its power, and is started again."""
    victim = worker_that_trains(training)
    rest = nodes.alive - {victim.name}
    victim.kill()
    noticed = nodes.wait_for(set(rest), 60)
    back = _throughput_is_back(training, before)
    victim.start()
    joined = nodes.wait_for({*rest, victim.name}, 120)
    return _told(noticed, back, joined)


def worker_evicted(training: Training, nodes: NodeWatch, before: float) -> str:
    """Azure gives notice, the worker leaves Ray and says so; the head asks for another one."""
    victim = worker_that_trains(training)
    everybody = set(nodes.alive)
    answered = evict(victim)
    noticed = nodes.wait_for(everybody - {victim.name}, 60)
    back = _throughput_is_back(training, before)
    joined = until(lambda: len(nodes.alive) == len(everybody), 120, "another worker")
    (new,) = nodes.alive - everybody
    left = f"left after {answered:.1f} s; {_told(noticed, back, joined, new)}"
    if answered > LEFT_S:
        raise UnexpectedError(left)
    return left


def worker_unplugged(training: Training, nodes: NodeWatch, before: float) -> str:
    """A worker has no network for a while."""
    victim = worker_that_trains(training)
    everybody = set(nodes.alive)
    bridges.unplug(victim.interface)
    start = time.monotonic()
    try:
        noticed = nodes.wait_for(everybody - {victim.name}, UNPLUGGED_S)
        time.sleep(max(0.0, UNPLUGGED_S - (time.monotonic() - start)))
    finally:
        bridges.plug_in(victim.interface)
    back = _throughput_is_back(training, before)
    joined = nodes.wait_for(everybody, 120)
    return _told(noticed, back, joined)


BACK = f"throughput back in {BACK_S:g} s"
WORKER_FAULTS = (
    WorkerFault("worker killed", f"noticed in {NOTICED_S:g} s, {BACK}, joins again", worker_killed),
    WorkerFault("spot eviction", f"leaves in {LEFT_S:g} s, {BACK}", worker_evicted),
    WorkerFault("network cut", f"of {UNPLUGGED_S:g} s; {BACK}, joins again", worker_unplugged),
)


HEAD_REBOOTS = "without an evicted worker: fewer env runners, the same MLflow run"


def head_reboots(context: Context) -> str:
    """The head reboots after an eviction for which Azure has no other machine.

    The experiment asks for more env runners than the CPUs that are left.
    """
    before = sum(context.training.env_runners().values())
    with management_faults() as faults:
        faults.machines = WORKERS - 1
    evict(all_machines()[-1])
    context.head.run("systemctl", "reboot", check=False)
    start = time.monotonic()
    until(lambda: not context.head.cloud_init_done(), 60, "the head goes down")
    until(context.head.cloud_init_done, 120, "the head is up again")
    booted = time.monotonic() - start
    continued = booted + context.training.continues(180)
    context.check_same_run()
    after = sum(context.training.env_runners().values())
    with management_faults() as faults:
        faults.machines = None
    seen = (
        f"up after {booted:.0f} s, trains after {continued:.0f} s with {after} of {before} "
        "env runners, the same MLflow run"
    )
    if not 0 < after < before:
        raise UnexpectedError(seen)
    return seen


def evict(victim: Machine) -> float:
    """Takes a worker away as Azure does; returns the seconds until it has answered the notice."""
    event = metadata_state.ScheduledEvent("Preempt", (victim.name,), time.time() + NOTICE_S)
    metadata_state.schedule(METADATA, event)
    answered = until(
        lambda: metadata_state.acknowledged(METADATA, event.event_id),
        NOTICE_S,
        f"the answer of {victim.name} to the notice",
    )
    (set_id,) = all_of(Backend().resources(), "VirtualMachineScaleSet")
    with management_faults() as faults:
        SetMachines(Backend()).evict(set_id, victim.name, faults)
    return answered


def management_faults() -> AbstractContextManager[Faults]:
    """Yields what goes wrong at Azure's management endpoint, to be changed."""
    return FaultsFile(MANAGEMENT / FAULTS).changed()


def worker_that_trains(training: Training) -> Machine:
    """Returns a worker with an env runner; its loss is one that the training feels."""
    found: list[str] = []

    def is_there() -> bool:
        found.extend(name for name, n in training.env_runners().items() if n and name != "head")
        return bool(found)

    until(is_there, 60, "an env runner on a worker")
    return Machine(found[0])


def _throughput_is_back(training: Training, before: float) -> float:
    """Waits for a throughput like the one before; returns the seconds that it took."""
    found, seconds = training.throughput(enough=ENOUGH * before, timeout_s=3 * BACK_S)
    if found < ENOUGH * before:
        raise UnexpectedError(f"{found:.0f} steps/s after {before:.0f}")
    return seconds


def _told(noticed: float, back: float, joined: float, another: str = "it") -> str:
    text = (
        f"noticed after {noticed:.1f} s, throughput back {back:.0f} s later, "
        f"{another} joined after {joined:.0f} s"
    )
    if noticed > NOTICED_S or back > BACK_S:
        raise UnexpectedError(text)
    return text
