"""A head with a running queue, without Azure."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from payload.archive import Archive
from payload.experiment.script import read_script
from payload.parcel import (
    ExperimentFiles,
    experiment_files,
    payload_archive,
    script_files,
)
from tests.head.installed_head import InstalledHead

NO_SAVE = "import sys\nprint('identity:', *sys.argv[1:], flush=True)"
NO_RESTORE = "def restore(*_):\n    pass\n"
"""They replace modules of head/identity, which tests/head/identity tests."""
CARTPOLE = """\
run: PPO
env: CartPole-v1
config: {{num_env_runners: {env_runners}, num_envs_per_env_runner: 2, train_batch_size: 200,
         min_time_s_per_iteration: 0, seed: 1}}
stop: {{time_total_s: 600}}
"""
SLOW_CARTPOLE = """\
run: PPO
env: slow:Slow-v0
source_directory: {source}
config: {{num_env_runners: 0, num_envs_per_env_runner: 2, train_batch_size: 100, minibatch_size: 50,
         num_epochs: 1, min_time_s_per_iteration: 1}}
stop: {{time_total_s: 600}}
"""


class Written(Archive):
    """An archive that was written before: its files may be gone, or it may be damaged."""

    def __init__(self, content: bytes) -> None:
        super().__init__({"content": content})
        self._content = content

    @property
    def size(self) -> int:
        return len(self._content)

    def pieces(self) -> Iterator[bytes]:
        yield self._content


def cartpole(env_runners: int = 1) -> str:
    """Returns an experiment that trains PPO on CartPole."""
    return CARTPOLE.format(env_runners=env_runners)


def slow_cartpole() -> ExperimentFiles:
    """Returns an experiment that leaves the machine's cores to others, and its environment."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "slow.yaml")
        source = Path(__file__).parents[2] / "payload/slow_environment"
        path.write_text(SLOW_CARTPOLE.format(source=source))
        return written(experiment_files(path))


def script(program: str, **values: Any) -> ExperimentFiles:
    """Returns a script with a module `square` beside it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "square.py").write_text("def square(x):\n    return x * x\n")
        Path(folder, "main.py").write_text(program)
        path = Path(folder, "script.yaml")
        described = {"source_directory": ".", "entry_script": "main.py", **values}
        path.write_text(json.dumps(described))
        return written(script_files(read_script(path, [])))


def written(files: ExperimentFiles) -> ExperimentFiles:
    """Reads what is to be sent, whose folder is removed before it is."""
    return ExperimentFiles(files.experiment, Written(files.archive.content()))


@cache
def payload() -> bytes:
    return payload_archive()


def sent(experiment: str | ExperimentFiles) -> bytes:
    """Returns the bytes that `submit` reads from stdin."""
    if isinstance(experiment, str):
        experiment = ExperimentFiles(experiment.encode())
    files = {"payload.tar": payload(), "experiment.yaml": experiment.experiment}
    own = {"files.tar": experiment.archive} if experiment.archive else {}
    return Archive({**files, "stack.yaml": b"{}", **own}).content()


class Head(InstalledHead):
    """The head's files, and the process of the queue."""

    def __init__(self, root: Path, variables: dict[str, str] | None = None) -> None:
        super().__init__(root)
        self._variables = variables or {}
        self.replace_module("identity/__main__.py", NO_SAVE)
        self.replace_module("identity/restored_runs.py", NO_RESTORE)
        self.queue: subprocess.Popen[str] | None = None

    @property
    def journal(self) -> str:
        """The queue's output."""
        return (self.root / "journal").read_text()

    @property
    def cluster_file(self) -> Path:
        """The file that the queue writes at each step."""
        return self.experiments / ".cluster.json"

    def submit(self, name: str, experiment: str | ExperimentFiles, *options: str) -> dict[str, Any]:
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
        """Returns the environment steps that an experiment has reported."""
        path = self.experiments / name / "status.json"
        status = json.loads(path.read_text()) if path.exists() else {}
        return int(status.get("env_steps") or 0)

    def wait_for(self, name: str, *states: str, timeout_s: float = 240) -> None:
        """Waits until an experiment is in one of these states."""
        self.until(
            lambda: self.record(name)["state"] in states,
            f"{name} {' or '.join(states)}",
            timeout_s,
        )

    def until(self, true: Callable[[], Any], what: str, timeout_s: float = 240) -> None:
        end = time.monotonic() + timeout_s
        while not true():
            assert time.monotonic() < end, f"{what}: {self.states_and_outputs()}"
            assert self.queue is None or self.queue.poll() is None, "the queue has ended"
            time.sleep(0.3)

    def states_and_outputs(self) -> dict[str, str]:
        """Returns the state of each experiment and the end of its output."""
        states = self.states()
        return {name: f"{state} {self.output(name)[-2000:]}" for name, state in states.items()}

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """Runs the queue and stops it as systemd does."""
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
