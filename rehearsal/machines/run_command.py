"""A managed run command, executed on its machine as Azure's agent would."""

from __future__ import annotations

import subprocess
import time
import uuid

from rehearsal.machines.machine import Machine
from rehearsal.shell import CommandError

SHOWN = 4096
"""Azure keeps the last bytes of output and error, so many of each."""
AGENT_S = 120.0
"""A machine's agent must listen after so long."""


class RunCommandError(Exception):
    """The script failed; the message ends with what it said last."""


def execute(machine: Machine, script: str, timeout_s: float) -> None:
    """Runs a script as root, in a unit of its own.

    Raises:
        RunCommandError: It ended with another code than 0, or took longer than `timeout_s`.
    """
    _wait_for_agent(machine)
    path = f"/var/lib/waagent/run-command/{uuid.uuid4()}.sh"
    machine.run("install", "-D", "-m", "0700", "/dev/stdin", path, text=script)
    command = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect", "bash", path]
    try:
        done = machine.run(*command, timeout_s=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        said = (error.stderr or b"").decode(errors="replace")
        raise RunCommandError(f"{said[-SHOWN:]}\nno end after {timeout_s:g} s") from None
    if done.returncode != 0:
        raise RunCommandError(
            f"the run command ended with exit code {done.returncode}\n"
            f"{done.stdout[-SHOWN:]}{done.stderr[-SHOWN:]}".rstrip()
        )


def _wait_for_agent(machine: Machine) -> None:
    end = time.monotonic() + AGENT_S
    while True:
        try:
            machine.run("busctl", "--quiet", "status", "org.freedesktop.systemd1")
        except CommandError as error:
            if time.monotonic() > end:
                raise RunCommandError(f"{machine.name} did not boot: {error}") from None
            time.sleep(0.2)
        else:
            return
