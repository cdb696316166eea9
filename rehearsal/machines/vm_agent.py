"""Executes managed run commands on a machine, as Azure's VM agent does."""

from __future__ import annotations

import time

from rehearsal.azure.resources.run_commands import Execution
from rehearsal.host_shell import CommandError
from rehearsal.machines.machine import Machine

FOLDER = "/var/lib/waagent/run-command"
TIMED_OUT = 124
"""Exit code of timeout(1)."""
RUN = """
cd {folder}
timeout {timeout_s} bash script > output 2> error
echo $? > .exit-code
mv .exit-code exit-code
"""
AGENT_S = 120.0
"""A machine's agent must listen within this time."""


def start(machine: Machine, execution_id: str, script: str, timeout_s: int) -> None:
    """Starts a script as root in its own unit; does nothing if the machine does not boot."""
    if not _agent_listens(machine):
        return
    folder = f"{FOLDER}/{execution_id}"
    machine.run("install", "-D", "-m", "0700", "/dev/stdin", f"{folder}/script", text=script)
    run = RUN.format(folder=folder, timeout_s=timeout_s)
    machine.run("systemd-run", "--quiet", f"--unit={_unit(execution_id)}", "bash", "-c", run)


def outcome(machine: Machine, execution_id: str) -> Execution | None:
    """Returns how a script ended; None while it runs."""
    if machine.leader is None:
        return Execution(exit_code=1, error=f"{machine.name} does not run")
    folder = f"{FOLDER}/{execution_id}"
    # The order matters: it may end between the two checks.
    running = machine.run("systemctl", "is-active", _unit(execution_id), check=False)
    code = machine.run("cat", f"{folder}/exit-code", check=False).stdout.strip()
    if not code:
        killed = Execution(exit_code=1, error="the script was killed")
        return None if running.returncode == 0 else killed
    output, error = (machine.run("cat", f"{folder}/{what}").stdout for what in ("output", "error"))
    return Execution(int(code), output, error, timed_out=int(code) == TIMED_OUT)


def _unit(execution_id: str) -> str:
    return f"run-command-{execution_id}.service"


def _agent_listens(machine: Machine) -> bool:
    end = time.monotonic() + AGENT_S
    while time.monotonic() < end:
        try:
            machine.run("busctl", "--quiet", "status", "org.freedesktop.systemd1")
        except CommandError:
            time.sleep(0.2)
        else:
            return True
    return False
