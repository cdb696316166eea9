"""What is seen of the cluster from this machine: Ray's nodes, and how fast the training is."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from payload.tracking.metrics import STEPS
from rehearsal.machines.machine import Machine, all_machines

AS_RAY = ["runuser", "--user", "ray", "--", "env", "HOME=/var/lib/volley"]
AS_RAY += ["RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN_PATH=/var/lib/volley/ray-token"]
PYTHON = "/opt/volley/venv/bin/python"
VOLLEY_HEAD = "/usr/local/bin/volley-head"
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
ENV_RUNNER = re.compile(r"ray::(Atari|Gymnasium)EnvRunner\b")
WINDOW_S = 8.0
"""Over which throughput is measured."""


def until(true: Callable[[], Any], timeout_s: float, what: str) -> float:
    """Waits; returns the seconds that it took.

    Raises:
        TimeoutError: `what`, and how long it was waited for.
    """
    start = time.monotonic()
    while not true():
        if time.monotonic() - start > timeout_s:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(0.1)
    return time.monotonic() - start


class NodeWatch:
    """Ray's own list of the nodes that are alive, kept up to date while this is open."""

    def __init__(self, head: Machine) -> None:
        self.head = head
        self.alive: frozenset[str] = frozenset()

    def __enter__(self) -> NodeWatch:
        self._process = subprocess.Popen(
            self.head.inside(*AS_RAY, PYTHON, "-c", WATCH),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        # What nsenter has started ends with it.
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
    """What the payload writes on the head while it trains, and its processes."""

    def __init__(self, head: Machine) -> None:
        self.head = head

    def started(self) -> float:
        """Returns time.monotonic() at the start of its job, after all nodes have joined."""
        newest = max(one["started"] or 0.0 for one in self.experiments())
        return newest - time.time() + time.monotonic()

    def experiments(self) -> list[dict[str, Any]]:
        """Returns what the head says of all experiments."""
        said = self.head.run(VOLLEY_HEAD, "status").stdout
        found: list[dict[str, Any]] = json.loads(said)["experiments"]
        return found

    def steps(self) -> int:
        """Returns the environment steps of the newest run so far; 0 before its first iteration."""
        runs = Path(f"/proc/{self.head.leader}/root/var/lib/volley/runs")
        files = sorted(runs.glob("*/runs/*/progress.csv"), key=lambda file: file.stat().st_mtime)
        if not files:
            return 0
        with files[-1].open(newline="") as file:
            rows = list(csv.DictReader(file))
        return int(float(rows[-1][STEPS] or 0)) if rows else 0

    def throughput(self, enough: float = 0.0, timeout_s: float = WINDOW_S) -> tuple[float, float]:
        """Measures environment steps per second over the last WINDOW_S seconds, until it is enough.

        Returns:
            Throughput, and the seconds since the call.
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
            found = (steps - before) / (now - then)
            if now - start >= WINDOW_S and (found >= enough or now - start > timeout_s):
                return found, now - start

    def continues(self, timeout_s: float) -> float:
        """Waits for another iteration; returns the seconds that it took."""
        steps = self.steps()
        return until(lambda: self.steps() > steps, timeout_s, f"more than {steps:,} steps")

    def env_runners(self) -> dict[str, int]:
        """Returns how many env runners each machine runs."""
        running = {machine.name: machine.run("ps", "-eo", "args") for machine in all_machines()}
        return {name: len(ENV_RUNNER.findall(done.stdout)) for name, done in running.items()}
