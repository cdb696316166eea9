"""What happens to workers: no notice, a notice, a cable; and that training outlives it."""

from __future__ import annotations

import time
from collections.abc import Callable

from rehearsal import backend
from rehearsal.azure import metadata_state
from rehearsal.machines.machine import Machine, all_machines
from rehearsal.network import bridges
from rehearsal.records import changing_records
from rehearsal.scenario.laptop import NodeWatch, Training, until
from rehearsal.scenario.outcomes import UnexpectedError

NOTICED_S = 12.0
"""Ray must know that a worker is gone."""
PACE_BACK_S = 30.0
ENOUGH = 0.7
"""Of the pace before; a machine with others on it is not steadier than that."""
NOTICE_S = 30.0
"""Azure's notice of an eviction."""
LEFT_S = 5.0
"""An evicted worker must have left Ray; one that systemd has to kill takes TimeoutStopSec."""
CUT_S = 20.0
ENV_RUNNER = "ray::AtariEnvRunner"

Fault = Callable[[Training, NodeWatch], str]


def killed(training: Training, nodes: NodeWatch) -> str:
    """A worker loses its power, and is started again."""
    victim = _a_worker_that_trains()
    pace, rest = training.pace(), nodes.alive - {victim.name}
    victim.kill()
    noticed = nodes.wait_for(set(rest), 60)
    back = _pace_is_back(training, pace)
    victim.start()
    joined = nodes.wait_for({*rest, victim.name}, 120)
    return _told(noticed, back, joined)


def evicted(training: Training, nodes: NodeWatch) -> str:
    """Azure gives notice, the worker leaves Ray and says so; another takes its place."""
    victim = _a_worker_that_trains()
    pace, rest = training.pace(), nodes.alive - {victim.name}
    event = metadata_state.ScheduledEvent("Preempt", (victim.name,), time.time() + NOTICE_S)
    metadata_state.schedule(backend.METADATA, event)
    answered = until(
        lambda: metadata_state.acknowledged(backend.METADATA, event.event_id),
        NOTICE_S,
        "the machine's answer to the notice",
    )
    noticed = nodes.wait_for(set(rest), 60)
    victim.delete()
    back = _pace_is_back(training, pace)
    with changing_records() as records:
        backend.converge(records)
    joined = nodes.wait_for({*rest, victim.name}, 120)
    left = f"left after {answered:.1f} s; {_told(noticed, back, joined)}"
    if answered > LEFT_S:
        raise UnexpectedError(left)
    return left


def cut(training: Training, nodes: NodeWatch) -> str:
    """A worker's cable is out for a while."""
    victim = _a_worker_that_trains()
    pace, everybody = training.pace(), set(nodes.alive)
    bridges.cut(victim.interface)
    start = time.monotonic()
    try:
        noticed = nodes.wait_for(everybody - {victim.name}, CUT_S)
        time.sleep(max(0.0, CUT_S - (time.monotonic() - start)))
    finally:
        bridges.mend(victim.interface)
    back = _pace_is_back(training, pace)
    joined = nodes.wait_for(everybody, 120)
    return _told(noticed, back, joined)


WORKER_FAULTS: tuple[tuple[str, str, Fault], ...] = (
    (
        "worker killed",
        f"noticed in {NOTICED_S:g} s, pace back in {PACE_BACK_S:g} s, joins again",
        killed,
    ),
    ("spot eviction", f"leaves in {LEFT_S:g} s, pace back in {PACE_BACK_S:g} s", evicted),
    ("network cut", f"of {CUT_S:g} s; pace back in {PACE_BACK_S:g} s, joins again", cut),
)


def _a_worker_that_trains() -> Machine:
    """Returns a worker with an env runner; its loss is one that training feels."""
    found: list[Machine] = []

    def is_there() -> bool:
        workers = [machine for machine in all_machines() if machine.name != "head"]
        found.extend(w for w in workers if ENV_RUNNER in w.run("ps", "-eo", "args").stdout)
        return bool(found)

    until(is_there, 60, "an env runner on a worker")
    return found[0]


def _pace_is_back(training: Training, before: float) -> float:
    """Waits for a pace like the one before; returns the seconds since the call."""
    start = time.monotonic()
    pace = 0.0
    while pace < ENOUGH * before:
        if time.monotonic() - start > 3 * PACE_BACK_S:
            raise UnexpectedError(f"{pace:.0f} steps/s after {before:.0f}")
        pace = training.pace()
    return time.monotonic() - start


def _told(noticed: float, back: float, joined: float) -> str:
    text = (
        f"noticed after {noticed:.1f} s, pace back {back:.0f} s later, "
        f"joined again after {joined:.0f} s"
    )
    if noticed > NOTICED_S or back > PACE_BACK_S:
        raise UnexpectedError(text)
    return text
