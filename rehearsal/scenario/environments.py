"""Where machines have their Python environment from, how long that took, and what it cost."""

from __future__ import annotations

from rehearsal.machines.machine import Machine
from rehearsal.network import bridges
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until

UNIT = "python-environment.service"
INSTALLED, TAKEN = "is ready: ray", "is ready, from the results account"
SHARED = "/var/lib/volley/environment.shared"
SHARED_S = 300.0
TAKEN_S = 90.0
"""How much longer such a boot may take than one with the environment on its image. It holds for a
machine that boots alone: those that boot at once share this machine's disk, and Azure's do not."""


def installed(machine: Machine) -> str:
    """Checks that a machine has made its environment from the package registries."""
    return _check(machine, INSTALLED)


def shared(head: Machine) -> str:
    """Waits until the head has shared what it has made."""

    def done() -> bool:
        return head.run("test", "-e", SHARED, check=False).returncode == 0

    return f"shared within {until(done, SHARED_S, 'the shared environment'):.0f} s"


def taken(machines: list[Machine]) -> str:
    """Checks that machines that booted at once have their environment from the results account."""
    seen = "; ".join(_check(machine, TAKEN) for machine in machines)
    if len(machines) == 1 and _seconds(machines[0]) > TAKEN_S:
        raise UnexpectedError(f"longer than {TAKEN_S:.0f} s: {seen}")
    return seen


def _check(machine: Machine, words: str) -> str:
    said = machine.run("journalctl", f"--unit={UNIT}", "--output=cat").stdout
    if words not in said:
        raise UnexpectedError(f"{machine.name}: {said}")
    received = bridges.received(machine.spec.address) / 1e6
    where = "registries" if words == INSTALLED else "results account"
    return (
        f"{machine.name}: environment from the {where} in {_seconds(machine):.0f} s, "
        f"{received:,.0f} MB through NAT"
    )


def _seconds(machine: Machine) -> float:
    """Returns how long the unit has run."""
    names = ("ExecMainStartTimestampMonotonic", "ExecMainExitTimestampMonotonic")
    shown = machine.run("systemctl", "show", UNIT, *(f"--property={name}" for name in names))
    values = dict(line.split("=") for line in shown.stdout.split())
    start, end = (int(values[name]) for name in names)
    return (end - start) / 1e6
