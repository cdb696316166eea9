"""Faults of a single process: it is killed, or stands still for half a minute."""

from __future__ import annotations

import re
import signal
import time
from functools import partial
from random import Random

from rehearsal.machines.nspawn_machine import Machine, all_machines
from rehearsal.scenario.outcomes import UnexpectedError
from rehearsal.soak.faults import Cluster, Fault

PROCESSES = {
    "env runner": r"^ray::\w*EnvRunner",
    "driver": r"-m payload (train|tune|run)\b",
    "raylet": r"/raylet/raylet ",
    "GCS": r"/gcs/gcs_server ",
    "dashboard": r"dashboard/dashboard\.py",
    "autoscaler": r"autoscaler/_private/monitor\.py",
    "MLflow": r"mlflow\.server|mlflow server",
    "queue": r"-m head\.queue",
}
"""The command lines of processes, by what the report calls them."""
STANDS_STILL_S = 30.0


def process_faults() -> list[Fault]:
    kills = [Fault(f"kill {name}", name, partial(kill, name)) for name in PROCESSES]
    stops = [Fault(f"stop {name}", name, partial(stand_still, name)) for name in PROCESSES]
    memory = Fault("out of memory", "memory", out_of_memory)
    return [*kills, *stops, memory]


def kill(name: str, cluster: Cluster) -> str:
    machine, process = _choose(name, cluster.random)
    _send(machine, process, signal.SIGKILL)
    return f"{name} on {machine.name}"


def stand_still(name: str, cluster: Cluster) -> str:
    machine, process = _choose(name, cluster.random)
    _send(machine, process, signal.SIGSTOP)
    try:
        time.sleep(STANDS_STILL_S)
    finally:
        _send(machine, process, signal.SIGCONT)
    return f"{name} on {machine.name} for {STANDS_STILL_S:.0f} s"


def out_of_memory(cluster: Cluster) -> str:
    """Kills the process that the kernel would choose.

    Machines share this host's memory, so none can be filled.
    https://man7.org/linux/man-pages/man5/proc_pid_oom_score.5.html
    """
    machine = cluster.random.choice(all_machines())
    script = 'for p in /proc/[0-9]*; do echo "$(cat $p/oom_score) ${p#/proc/}"; done 2>/dev/null'
    lines = machine.run("sh", "-c", script).stdout.splitlines()
    scores = [tuple(map(int, line.split())) for line in lines if len(line.split()) == 2]
    _, process = max(scores)
    command = machine.run("cat", f"/proc/{process}/cmdline", check=False).stdout.split("\0")[0]
    _send(machine, process, signal.SIGKILL)
    return f"{command} on {machine.name}"


def _choose(name: str, random: Random) -> tuple[Machine, int]:
    """Returns a process with this name, and its machine."""
    pattern = re.compile(PROCESSES[name])
    candidates = [
        (machine, int(line.split()[0]))
        for machine in all_machines()
        if machine.leader is not None
        for line in machine.run("ps", "-eo", "pid=,args=", check=False).stdout.splitlines()
        if pattern.search(line.strip().partition(" ")[2])
    ]
    if not candidates:
        raise UnexpectedError(f"no {name} runs")
    return random.choice(candidates)


def _send(machine: Machine, process: int, number: signal.Signals) -> None:
    machine.run("kill", f"-{int(number)}", str(process), check=False)
