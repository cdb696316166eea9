"""Where each machine got its Python environment, how long that took and what it downloaded."""

from __future__ import annotations

from rehearsal.machines.nspawn_machine import Machine
from rehearsal.network import bridges
from rehearsal.scenario.head_commands import ENVIRONMENT_ARCHIVE, PYTHON_ENVIRONMENT_UNIT
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.scenario.training_watch import until

INSTALLED, TAKEN = "is ready: ray", "is ready, from the results account"
SHARED_S = 300.0
TAKEN_S = 90.0
"""How much longer a boot may take than with the environment on the image. The limit holds for a
machine that boots alone: machines that boot together share this machine's disk, unlike Azure's."""


def installed(machine: Machine) -> str:
    """Checks that a machine has made its environment from the package registries."""
    return _source(machine, INSTALLED)


def shared(head: Machine) -> str:
    """Waits until the head has shared the environment that it has made."""

    def done() -> bool:
        return head.run("test", "!", "-e", ENVIRONMENT_ARCHIVE, check=False).returncode == 0

    return f"shared within {until(done, SHARED_S, 'the shared environment'):.0f} s"


def taken(machines: list[Machine]) -> str:
    """Checks that machines that booted together took their environment from the results account."""
    seen = "; ".join(_source(machine, TAKEN) for machine in machines)
    if len(machines) == 1 and _seconds(machines[0]) > TAKEN_S:
        raise UnexpectedError(f"longer than {TAKEN_S:.0f} s: {seen}")
    return seen


def _source(machine: Machine, message: str) -> str:
    unit = f"--unit={PYTHON_ENVIRONMENT_UNIT}"
    journal = machine.run("journalctl", unit, "--output=cat").stdout
    if message not in journal:
        raise UnexpectedError(f"{machine.name}: {journal}")
    received = bridges.received(machine.spec.address) / 1e6
    where = "registries" if message == INSTALLED else "results account"
    return (
        f"{machine.name}: environment from the {where} in {_seconds(machine):.0f} s, "
        f"{received:,.0f} MB through NAT"
    )


def _seconds(machine: Machine) -> float:
    """Returns how long the unit that makes the environment ran."""
    names = ("ExecMainStartTimestampMonotonic", "ExecMainExitTimestampMonotonic")
    properties = [f"--property={name}" for name in names]
    lines = machine.run("systemctl", "show", PYTHON_ENVIRONMENT_UNIT, *properties).stdout.split()
    values = dict(line.split("=") for line in lines)
    start, end = (int(values[name]) for name in names)
    return (end - start) / 1e6
