"""The act in which rollout fragments cross a network of a twentieth of Azure's rate."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from bench.limited_link import add_limit
from bench.scale import FRAGMENTS, LINK_MBIT_PER_S, TWO_CORES_PER_S, measurements
from rehearsal.machines.machine import Machine, all_machines
from rehearsal.paths import ROOT
from rehearsal.scenario.context import WORKERS, Context
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import AS_RAY, PYTHON, VOLLEY_HEAD
from rehearsal.shell import run

WORKER_MBIT_PER_S = 12_500 / 20
"""A twentieth of a Standard_D2as_v5's."""
OFFERED, MUCH = 10 * TWO_CORES_PER_S, 30 * TWO_CORES_PER_S
"""Environment steps per second. Two cores may not carry the second, with whatever network."""
ENOUGH = 0.9
"""Of what is offered."""
ALIKE = 0.8
"""Of what arrives without a limit."""
SECONDS = 10.0
BYTES_PER_STEP = 50
"""At least; a fragment of random play has 59."""
PACKAGES = Path("tmp/volley-bench")
"""On the head, whose own copy of the payload is without the benchmark."""


def limited_network(context: Context) -> str:
    """Env runners that cost nothing, on the workers, feed a learner on the head that costs nothing.

    The training stops meanwhile, and continues after it.
    """
    head = context.head
    (experiment,) = context.training.experiments()
    head.run(VOLLEY_HEAD, "stop", experiment["name"])
    try:
        with _benchmark_on(head):
            free = _carried(head, MUCH)
            with ExitStack() as links:
                for machine in all_machines():
                    rate = LINK_MBIT_PER_S if machine.name == head.name else WORKER_MBIT_PER_S
                    links.enter_context(_limited(machine, rate))
                carried, much = _carried(head, OFFERED), _carried(head, MUCH)
    finally:
        head.run(VOLLEY_HEAD, "resume", experiment["name"])
    context.training.continues(120)
    seen = (
        f"with {LINK_MBIT_PER_S:g} Mbit/s of the head and {WORKER_MBIT_PER_S:g} of a worker "
        f"{carried:,.0f} of {OFFERED:,.0f} steps/s and {much:,.0f} of {MUCH:,.0f}, which are "
        f"{free:,.0f} without a limit"
    )
    if carried < ENOUGH * OFFERED or much < ALIKE * free:
        raise UnexpectedError(seen)
    return seen


def _carried(head: Machine, offered: float) -> float:
    """Returns how many of the environment steps offered per second arrive."""
    alike = measurements(SECONDS)[FRAGMENTS]
    limit = replace(alike, env_runners=WORKERS, steps_per_s=offered, node_resource="worker")
    found = Path("/", PACKAGES, "found.json")
    before = _received(head)
    code = ["-m", "bench.limits", str(found), json.dumps(asdict(limit))]
    head.run(*AS_RAY, f"PYTHONPATH=/{PACKAGES}", PYTHON, *code, timeout_s=180)
    carried = float(json.loads(head.run("cat", found).stdout)["steps_per_s"])
    if (received := _received(head) - before) < SECONDS * carried * BYTES_PER_STEP:
        raise UnexpectedError(f"{carried:,.0f} steps/s, but the head received {received:,} bytes")
    return carried


@contextmanager
def _limited(machine: Machine, mbit_per_s: float) -> Iterator[None]:
    """Limits a machine's network in each direction."""
    inside = ["nsenter", "-t", str(machine.leader), "-n"]
    ends: list[tuple[list[str], str]] = [([], machine.interface), (inside, "host0")]
    try:
        for where, interface in ends:
            run(*where, "tc", *add_limit(interface, mbit_per_s))
        yield
    finally:
        for where, interface in ends:
            run(*where, "tc", "qdisc", "del", "dev", interface, "root", check=False)


@contextmanager
def _benchmark_on(head: Machine) -> Iterator[None]:
    """Puts the whole payload on the head while this is open, for the user that Ray runs as."""
    place = Path(f"/proc/{head.leader}/root", PACKAGES)
    try:
        for name in ("payload", "bench"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, place / name, ignore=ignored)
        head.run("chown", "ray", Path("/", PACKAGES))
        yield
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _received(machine: Machine) -> int:
    """Returns the bytes that a machine has received from other machines so far."""
    return int(Path(f"/sys/class/net/{machine.interface}/statistics/tx_bytes").read_text())
