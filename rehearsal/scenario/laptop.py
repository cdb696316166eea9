"""What can be seen of the cluster from outside: Ray's nodes, the training's pace, MLflow."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from rehearsal import paths
from rehearsal.machines.machine import Machine
from rehearsal.network.bridges import INTERNET
from rehearsal.shell import CommandError, run

AS_RAY = ["runuser", "--user", "ray", "--", "env", "HOME=/var/lib/volley"]
AS_RAY += ["RAY_AUTH_MODE=token", "RAY_AUTH_TOKEN_PATH=/var/lib/volley/ray-token"]
PYTHON = "/opt/volley/venv/bin/python"
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
STEPS = "env_steps"
PACE_S = 8.0
"""Over which a pace is measured."""


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
    """Ray's own list of the nodes that are alive, as the head's control store changes it."""

    def __init__(self, head: Machine) -> None:
        self.head = head
        self.alive: frozenset[str] = frozenset()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> NodeWatch:
        command = self.head.inside(*AS_RAY, PYTHON, "-c", WATCH)
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=[self._process], daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        # What nsenter has started goes with it.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._reader.join()
        self._process.communicate()

    def wait_for(self, names: set[str], timeout_s: float) -> float:
        """Waits until exactly these nodes are alive; returns the seconds that it took."""
        what = f"{', '.join(sorted(names))} alive (now {', '.join(sorted(self.alive))})"
        return until(lambda: self.alive == names, timeout_s, what)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.alive = frozenset(line.split())


class Training:
    """What the payload writes on the head while it trains."""

    def __init__(self, head: Machine) -> None:
        self.head = head

    def started(self) -> float:
        """Returns time.monotonic() at the start of its unit, which waits for all nodes to join."""
        shown = ("show", "training.service", "--property=ExecMainStartTimestampMonotonic")
        return int(self.head.run("systemctl", *shown, "--value").stdout) / 1e6

    def steps(self) -> int:
        """Returns the environment steps of the newest run so far; 0 before its first iteration."""
        leader = self.head.leader
        runs = Path(f"/proc/{leader}/root/var/lib/volley/runs")
        files = sorted(runs.glob("*/runs/*/progress.csv"), key=lambda file: file.stat().st_mtime)
        if not files:
            return 0
        with files[-1].open(newline="") as file:
            rows = list(csv.DictReader(file))
        return int(float(rows[-1][STEPS] or 0)) if rows else 0

    def pace(self) -> float:
        """Measures environment steps per second over the next PACE_S seconds."""
        start, steps = time.monotonic(), self.steps()
        time.sleep(PACE_S)
        return (self.steps() - steps) / (time.monotonic() - start)

    def goes_on(self, timeout_s: float) -> float:
        """Waits for another iteration; returns the seconds that it took."""
        steps = self.steps()
        return until(lambda: self.steps() > steps, timeout_s, f"more than {steps:,} steps")


class Laptop:
    """The administrator's machine on the internet, with the key that the stack knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = folder / "id_ed25519"
        self.ssh_config = folder / "ssh_config"

    @property
    def public_key(self) -> str:
        if not self.key.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rehearsal", "-f", self.key)
            self.ssh_config.write_text(
                f"IdentityFile {self.key}\nIdentitiesOnly yes\nStrictHostKeyChecking no\n"
                "UserKnownHostsFile /dev/null\nLogLevel ERROR\nExitOnForwardFailure yes\n"
                f"BindAddress {paths.ADMIN_ADDRESS}\n"
            )
        return self.key.with_suffix(".pub").read_text().strip()

    def ssh(self, command: str, *words: str, timeout_s: float = 30) -> str:
        """Runs what an output of the stack says, "ssh volley@198.51.100.1", with more words."""
        return run(*self.with_key(command), *words, timeout_s=timeout_s).stdout

    def with_key(self, command: str) -> list[str]:
        """Returns an ssh command as this machine runs it: with its key, from its place."""
        first, *rest = command.split()
        assert first == "ssh"
        return ["ip", "netns", "exec", INTERNET, "ssh", "-F", str(self.ssh_config), *rest]

    def get(self, url: str, body: dict[str, Any] | None = None, token: str = "") -> Any:
        """Asks for JSON from this machine, through whatever tunnel is open."""
        command = [
            "ip",
            "netns",
            "exec",
            INTERNET,
            "curl",
            "--silent",
            "--fail",
            "--max-time",
            "20",
        ]
        if body is not None:
            command += ["--json", json.dumps(body)]
        if token:
            command += ["--header", f"Authorization: Bearer {token}"]
        return json.loads(run(*command, url, timeout_s=30).stdout)


class Tunnel:
    """The stack's tunnel command, running."""

    def __init__(self, laptop: Laptop, command: str) -> None:
        self.laptop, self.command = laptop, command

    def __enter__(self) -> Laptop:
        self._process = subprocess.Popen(
            self.laptop.with_key(self.command), stderr=subprocess.PIPE, text=True
        )
        until(self._is_open, 30, "the tunnel")
        return self.laptop

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate()

    def _is_open(self) -> bool:
        if self._process.poll() is not None:
            assert self._process.stderr is not None
            raise CommandError(f"{self.command}: {self._process.stderr.read().strip()}")
        listening = run("ip", "netns", "exec", INTERNET, "ss", "-Hltn", "sport = :5000").stdout
        return bool(listening.strip())


def newest_run(laptop: Laptop, mlflow: str) -> dict[str, Any]:
    """Returns MLflow's newest run: {"info": ..., "data": {"metrics": [...], ...}}."""
    found = laptop.get(f"{mlflow}/api/2.0/mlflow/experiments/search", {"max_results": 100})
    ids = [experiment["experiment_id"] for experiment in found["experiments"]]
    query = {"experiment_ids": ids, "order_by": ["attributes.start_time DESC"], "max_results": 1}
    (newest,) = laptop.get(f"{mlflow}/api/2.0/mlflow/runs/search", query)["runs"]
    return dict(newest)
