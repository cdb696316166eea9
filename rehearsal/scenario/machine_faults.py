"""Acts in which machines fail, and the training survives.

A worker loses its power, is evicted or loses its network; the head reboots while a worker is gone.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

from rehearsal.azure.management.management_faults import Faults, FaultsFile
from rehearsal.azure.management.management_service import FAULTS
from rehearsal.azure.management.scale_set_changes import SetMachines
from rehearsal.azure.metadata import metadata_state
from rehearsal.azure.resources.resource_kinds import all_of
from rehearsal.azure.resources.scale_set_machines import machines_of
from rehearsal.backend import Backend
from rehearsal.host_paths import MANAGEMENT, METADATA
from rehearsal.host_shell import run
from rehearsal.machines.nspawn_machine import Machine, all_machines
from rehearsal.scenario.context import WORKERS, Context
from rehearsal.scenario.head_commands import software_digest
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import NodeWatch, Training, until

NOTICED_S = 12.0
"""Ray must notice a lost worker within this time."""
BACK_S = 30.0
"""The throughput must be back within this time."""
ENOUGH = 0.7
"""The part of the earlier throughput that counts as back; a shared machine is not steadier."""
NOTICE_S = 30.0
"""How long before an eviction Azure announces it."""
LEFT_S = 5.0
"""An evicted worker must have left Ray; if systemd has to kill it, that takes TimeoutStopSec."""
UNPLUGGED_S = 20.0


def worker_killed(training: Training, nodes: NodeWatch, before: float) -> str:
    """Cuts the power of a worker, then starts it again."""
    victim = worker_that_trains(training)
    rest = nodes.alive - {victim.name}
    victim.kill()
    noticed = nodes.wait_for(set(rest), 60)
    back = _throughput_is_back(training, before)
    victim.start()
    joined = nodes.wait_for({*rest, victim.name}, 120)
    return _seen(noticed, back, joined)


def worker_evicted(training: Training, nodes: NodeWatch, before: float) -> str:
    """Announces an eviction: the worker leaves Ray and confirms; another worker comes."""
    victim = worker_that_trains(training)
    everybody = set(nodes.alive)
    answered = evict(victim)
    noticed = nodes.wait_for(everybody - {victim.name}, 60)
    back = _throughput_is_back(training, before)
    joined = until(lambda: len(nodes.alive) == len(everybody), 120, "another worker")
    (new,) = nodes.alive - everybody
    seen = f"left after {answered:.1f} s; {_seen(noticed, back, joined, new)}"
    if answered > LEFT_S:
        raise UnexpectedError(seen)
    return seen


def worker_unplugged(training: Training, nodes: NodeWatch, before: float) -> str:
    """Disconnects a worker from the network for a while."""
    victim = worker_that_trains(training)
    everybody = set(nodes.alive)
    run("ip", "link", "set", victim.interface, "down")
    start = time.monotonic()
    try:
        noticed = nodes.wait_for(everybody - {victim.name}, UNPLUGGED_S)
        time.sleep(max(0.0, UNPLUGGED_S - (time.monotonic() - start)))
    finally:
        run("ip", "link", "set", victim.interface, "up")
    back = _throughput_is_back(training, before)
    joined = nodes.wait_for(everybody, 120)
    return _seen(noticed, back, joined)


BACK = f"throughput back in {BACK_S:g} s"
WORKER_FAULTS = (
    ("worker killed", f"noticed in {NOTICED_S:g} s, {BACK}, joins again", worker_killed),
    ("spot eviction", f"leaves in {LEFT_S:g} s, {BACK}", worker_evicted),
    ("network cut", f"of {UNPLUGGED_S:g} s; {BACK}, joins again", worker_unplugged),
)
"""Name, expectation and act of each fault; the act takes the cluster's earlier throughput."""


HEAD_REBOOTS = "while a worker is missing: fewer env runners, the same run and software"


def head_reboots(context: Context) -> str:
    """Reboots the head after an eviction for which Azure has no other machine.

    The experiment asks for more env runners than there are CPUs left.
    """
    before, software = sum(context.training.env_runners().values()), software_digest(context.head)
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
    if software_digest(context.head) != software:
        raise UnexpectedError("the head has other software than before")
    with management_faults() as faults:
        faults.machines = None
    seen = (
        f"up after {booted:.0f} s, trains after {continued:.0f} s with {after} of {before} "
        "env runners, the same MLflow run"
    )
    if not 0 < after < before:
        raise UnexpectedError(seen)
    return seen


def evict_at_work(context: Context, nodes: NodeWatch, comes_s: float) -> str:
    """Evicts a worker that trains, and waits until another one has joined."""
    everybody = set(nodes.alive)
    victim = worker_that_trains(context.training)
    left = evict(victim)
    until(lambda: victim.name not in nodes.alive, 90, f"{victim.name} leaves")
    came = until(lambda: bool(nodes.alive - everybody), comes_s, "another worker")
    (new,) = nodes.alive - everybody
    return f"{victim.name} left after {left:.0f} s, {new} joined {came:.0f} s later"


def evict(victim: Machine) -> float:
    """Evicts a worker as Azure does; returns the seconds until it confirmed the notice."""
    event = metadata_state.ScheduledEvent("Preempt", (victim.name,), time.time() + NOTICE_S)
    metadata_state.schedule(METADATA, event)
    answered = until(
        lambda: metadata_state.acknowledged(METADATA, event.event_id),
        NOTICE_S,
        f"{victim.name} confirms the notice",
    )
    take_away(victim)
    return answered


def take_away(victim: Machine) -> None:
    """Evicts a worker without a notice."""
    (set_id,) = all_of(Backend().resources(), "VirtualMachineScaleSet")
    with management_faults() as faults:
        SetMachines(Backend()).evict(set_id, victim.name, faults)


def management_faults() -> AbstractContextManager[Faults]:
    """Yields the faults of Azure's management endpoint; changes of them take effect at the end."""
    return FaultsFile(MANAGEMENT / FAULTS).changed()


def worker_that_trains(training: Training) -> Machine:
    """Waits for a worker with an env runner, whose loss affects the training; returns it."""
    names: list[str] = []

    def one_trains() -> bool:
        numbers = training.env_runners().items()
        names.extend(name for name, number in numbers if number and name != "head")
        return bool(names)

    until(one_trains, 60, "an env runner on a worker")
    return Machine(names[0])


def _throughput_is_back(training: Training, before: float) -> float:
    """Waits for a throughput like the one before; returns the seconds that it took."""
    after, seconds = training.throughput(enough=ENOUGH * before, timeout_s=3 * BACK_S)
    if after < ENOUGH * before:
        raise UnexpectedError(f"{after:.0f} steps/s after the fault, {before:.0f} before")
    return seconds


def _seen(noticed: float, back: float, joined: float, joining: str = "it") -> str:
    seen = (
        f"noticed after {noticed:.1f} s, throughput back {back:.0f} s later, "
        f"{joining} joined after {joined:.0f} s"
    )
    if noticed > NOTICED_S or back > BACK_S:
        raise UnexpectedError(seen)
    return seen


def azure_workers() -> set[str]:
    """Returns the names of the workers that Azure has."""
    (scale_set,) = all_of(Backend().resources(), "VirtualMachineScaleSet").values()
    machines = machines_of(scale_set, time.time())
    return {machine.name for machine in machines if machine.gone is None}


def check_only_azures_machines() -> None:
    """Waits until exactly Azure's machines run: a change takes a moment."""

    def same() -> bool:
        return {machine.name for machine in all_machines()} == {"head", *azure_workers()}

    until(same, 30, "exactly Azure's machines run")


def check_head_is_alone() -> None:
    machines = [machine.name for machine in all_machines()]
    if machines != ["head"]:
        raise UnexpectedError(f"machines: {', '.join(machines)}")
