"""The act in which rollout fragments cross a network with a twentieth of Azure's bandwidth."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path

from bench.limited_link import add_limit
from bench.scale import FRAGMENTS, LINK_MBIT_PER_S, TWO_CORES_PER_S, measurements
from rehearsal.host_paths import ROOT
from rehearsal.host_shell import run
from rehearsal.machines.nspawn_machine import Machine, all_machines
from rehearsal.scenario import head_commands
from rehearsal.scenario.context import WORKERS, Context
from rehearsal.scenario.head_commands import AS_RAY, PYTHON
from rehearsal.scenario.outcomes import UnexpectedError

WORKER_MBIT_PER_S = 12_500 / 20
"""A twentieth of a Standard_D2as_v5's bandwidth."""
NEEDED, OFFERED = 9 * TWO_CORES_PER_S, 30 * TWO_CORES_PER_S
"""Environment steps per second. On any network, two cores may not carry all OFFERED steps."""
ALIKE = 0.8
"""At least this part of the unlimited throughput must arrive with the limit."""
SECONDS = 6.0
BYTES_PER_STEP = 50
"""A lower bound; a fragment of random play has 59."""
PACKAGES = Path("tmp/volley-bench")
"""A folder on the head, whose own copy of the payload lacks the benchmark."""


def limited_network(context: Context) -> str:
    """Feeds a receive-only learner on the head from synthetic env runners on the workers.

    Training is stopped meanwhile and continues afterwards.
    """
    head = context.head
    (experiment,) = context.training.experiments()
    head_commands.stop(head, experiment["name"])
    try:
        with _benchmark_on(head):
            free = _carried(head)
            with ExitStack() as links:
                for machine in all_machines():
                    rate = LINK_MBIT_PER_S if machine.name == head.name else WORKER_MBIT_PER_S
                    links.enter_context(limited(machine, rate))
                carried = _carried(head)
    finally:
        head_commands.resume(head, experiment["name"])
    context.training.continues(120)
    seen = (
        f"with {LINK_MBIT_PER_S:g} Mbit/s for the head and {WORKER_MBIT_PER_S:g} for a worker "
        f"{carried:,.0f} of {OFFERED:,.0f} steps/s arrive; {free:,.0f} without a limit"
    )
    if carried < NEEDED or carried < ALIKE * free:
        raise UnexpectedError(seen)
    return seen


def _carried(head: Machine) -> float:
    """Returns how many of the environment steps offered per second arrive."""
    alike = measurements(SECONDS)[FRAGMENTS]
    limit = replace(alike, env_runners=WORKERS, steps_per_s=OFFERED, node_resource="worker")
    answer = Path("/", PACKAGES, "answer.json")
    before = _received(head)
    code = ["-m", "bench.limits", str(answer), json.dumps(asdict(limit))]
    head.run(*AS_RAY, f"PYTHONPATH=/{PACKAGES}", PYTHON, *code, timeout_s=180)
    carried = float(json.loads(head.run("cat", answer).stdout)["steps_per_s"])
    if (received := _received(head) - before) < SECONDS * carried * BYTES_PER_STEP:
        raise UnexpectedError(f"{carried:,.0f} steps/s, but the head received {received:,} bytes")
    return carried


@contextmanager
def limited(machine: Machine, mbit_per_s: float) -> Iterator[None]:
    """Limits what a machine sends and receives while this is open."""
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
    """Copies the payload and the benchmark to the head while this is open, for Ray's user."""
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
    return int(Path(f"/sys/class/net/{machine.interface}/statistics/tx_bytes").read_text())
