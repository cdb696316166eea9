"""A head with a running queue, without Azure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from payload.parcel import archive, payload_archive
from tests.head.installed_head import InstalledHead

NO_RESULTS = """\
import sys

def restore_runs(*_):
    pass

if __name__ == "__main__":
    print("results:", *sys.argv[1:], flush=True)
"""
"""Instead of head/results.py, which tests/head/results tests."""
CARTPOLE = """\
run: PPO
env: CartPole-v1
config: {{num_env_runners: {env_runners}, num_envs_per_env_runner: 2, train_batch_size: 200,
         min_time_s_per_iteration: 0, seed: 1}}
stop: {{{stop}}}
"""
LONG = "time_total_s: 600"
SHORT = "training_iteration: 1"


def cartpole(stop: str = LONG, env_runners: int | str = 1) -> str:
    """Returns an experiment that starts soon."""
    return CARTPOLE.format(stop=stop, env_runners=env_runners)


@cache
def payload() -> bytes:
    return payload_archive()


def sent(experiment: str) -> bytes:
    """Returns what `submit` reads."""
    files = {"payload.tar": payload(), "experiment.yaml": experiment.encode()}
    return archive({**files, "stack.yaml": b"{}"})


class Head(InstalledHead):
    """The head's files, and the process of the queue."""

    def __init__(self, root: Path, variables: dict[str, str] | None = None) -> None:
        super().__init__(root)
        self._variables = variables or {}
        self.replace_module("results.py", NO_RESULTS)
        self.queue: subprocess.Popen[str] | None = None

    @property
    def journal(self) -> str:
        """What the queue has written."""
        return (self.root / "journal").read_text()

    def submit(self, name: str, experiment: str, *options: str) -> dict[str, Any]:
        return self.ask("submit", name, *options, stdin=sent(experiment))

    def record(self, name: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.experiments / name / "state.json").read_text())
        return record

    def states(self) -> dict[str, str]:
        answer = self.ask("status")
        return {record["name"]: record["state"] for record in answer["experiments"]}

    def output(self, name: str) -> str:
        path = self.experiments / name / "output.log"
        return path.read_text() if path.exists() else ""

    def steps(self, name: str) -> int:
        """Returns how far an experiment says that it has come."""
        path = self.experiments / name / "status.json"
        status = json.loads(path.read_text()) if path.exists() else {}
        return int(status.get("env_steps") or 0)

    def wait_for(self, name: str, *states: str, timeout_s: float = 240) -> None:
        """Waits until an experiment has one of some states."""
        self.until(
            lambda: self.record(name)["state"] in states,
            f"{name} {' or '.join(states)}",
            timeout_s,
        )

    def until(self, true: Callable[[], Any], what: str, timeout_s: float = 240) -> None:
        end = time.monotonic() + timeout_s
        while not true():
            outputs = {name: self.output(name)[-2000:] for name in self.states()}
            assert time.monotonic() < end, f"{what}: {self.states()} {outputs}"
            assert self.queue is None or self.queue.poll() is None, "the queue has ended"
            time.sleep(0.3)

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """Runs the queue; ends it as systemd does."""
        azure = ("RESULTS_CONTAINER", "RESULTS_ACCOUNT", "AZURE_CLIENT_ID")
        variables = {**dict.fromkeys(azure, "none"), **self._variables, **self.environment}
        with (self.root / "journal").open("a") as journal:
            self.queue = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", "head.queue"],
                env={**os.environ, **variables},
                stdout=journal,
                stderr=journal,
                text=True,
                start_new_session=True,
            )
        try:
            yield self.queue
        finally:
            if self.queue.poll() is None:
                self.queue.send_signal(signal.SIGTERM)
                self.queue.wait(timeout=120)
            self.queue = None
