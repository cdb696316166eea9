"""What this machine sees of the cluster: Ray's nodes, and how fast the training is."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from payload.tracking.metrics import STEPS
from rehearsal.machines.nspawn_machine import Machine, all_machines
from rehearsal.scenario import head_commands
from rehearsal.scenario.head_commands import AS_RAY, PYTHON

WATCH = """
import ray, time
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
before = None
while True:
    nodes = sorted(n["NodeManagerHostname"] for n in ray.nodes() if n["Alive"])
    if nodes != before:
        print(*nodes, flush=True)
        before = nodes
    time.sleep(0.2)
"""
AGAIN = ("sh", "-c", 'until "$@"; do sleep 1; done', "sh")
"""Repeats a command that fails: Ray may still be starting on a head that has just booted."""
ENV_RUNNER = re.compile(r"ray::(Atari|Gymnasium)EnvRunner\b")
DRIVER = "-m payload train"
WINDOW_S = 5.0
"""Seconds over which the throughput is measured."""
PROCESS_POLL_S = 1.0
"""Pause between two checks that each start a process here: the cluster needs the CPUs."""


def until(condition: Callable[[], Any], timeout_s: float, what: str, pause_s: float = 0.1) -> float:
    """Waits for a condition; returns the seconds that it took, or raises TimeoutError."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > timeout_s:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(pause_s)
    return time.monotonic() - start


class NodeWatch:
    """Ray's own list of the nodes that are alive, up to date while this is open."""

    def __init__(self, head: Machine) -> None:
        self.head = head
        self.alive: frozenset[str] = frozenset()

    def __enter__(self) -> NodeWatch:
        self._process = subprocess.Popen(
            self.head.inside(*AS_RAY, *AGAIN, PYTHON, "-c", WATCH),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        # The group includes what nsenter has started.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._reader.join()
        self._process.communicate()

    def wait_for(self, names: set[str], timeout_s: float) -> float:
        """Waits until exactly these nodes are alive; returns the seconds that it took."""
        what = f"{', '.join(sorted(names))} alive (now {', '.join(sorted(self.alive))})"
        return until(lambda: self.alive == names, timeout_s, what)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.alive = frozenset(line.split())


class Training:
    """The experiments of a head: what the payload writes there, and its processes."""

    def __init__(self, head: Machine) -> None:
        self.head = head

    def started(self) -> float:
        """Returns time.monotonic() at the start of the newest job; all nodes had joined by then."""
        newest = max(experiment["started"] or 0.0 for experiment in self.experiments())
        return newest - time.time() + time.monotonic()

    def experiments(self) -> list[dict[str, Any]]:
        experiments: list[dict[str, Any]] = head_commands.status(self.head)["experiments"]
        return experiments

    def steps(self) -> int:
        """Returns the environment steps of the newest run so far; 0 before its first iteration."""
        files = head_commands.progress_files(self.head)
        if not files:
            return 0
        with files[-1].open(newline="") as file:
            rows = list(csv.DictReader(file))
        return int(float(rows[-1][STEPS] or 0)) if rows else 0

    def throughput(self, enough: float = 0.0, timeout_s: float = WINDOW_S) -> tuple[float, float]:
        """Measures environment steps per second over the last WINDOW_S seconds, until it is enough.

        Returns the throughput and the seconds since the call.
        """
        samples = [(time.monotonic(), self.steps())]
        start = samples[0][0]
        while True:
            time.sleep(1)
            samples.append((time.monotonic(), self.steps()))
            now, steps = samples[-1]
            while now - samples[1][0] >= WINDOW_S:
                del samples[0]
            then, before = samples[0]
            rate = (steps - before) / (now - then)
            if now - start >= WINDOW_S and (rate >= enough or now - start > timeout_s):
                return rate, now - start

    def continues(self, timeout_s: float) -> float:
        """Waits for another iteration; returns the seconds that it took."""
        steps = self.steps()
        return until(lambda: self.steps() > steps, timeout_s, f"more than {steps:,} steps")

    def env_runners(self) -> dict[str, int]:
        running = {machine.name: machine.run("ps", "-eo", "args") for machine in all_machines()}
        return {name: len(ENV_RUNNER.findall(done.stdout)) for name, done in running.items()}

    def processes(self) -> frozenset[str]:
        """Returns the driver and env runners of all experiments, each as machine and process id."""
        return frozenset(
            f"{machine.name} {line.split()[0]}"
            for machine in all_machines()
            for line in machine.run("ps", "-eo", "pid=,args=").stdout.splitlines()
            if ENV_RUNNER.search(line) or DRIVER in line
        )
