"""A queue on a simulated cluster, which a test plays step by step."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.job_submission import JobStatus

from head.queue import cluster_state, restart_rules
from head.queue.cluster_state import RayNode
from head.queue.queue import Queue
from head.queue.record import Record
from head.queue.store import Store


@dataclass
class ListedCluster:
    """A simulated cluster whose nodes and jobs the test sets."""

    cpus: int = 2
    listed: dict[str, Any] = field(default_factory=dict)
    started: list[tuple[str, int]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)
    """The numbers of workers that the queue has requested from Ray's autoscaler."""
    start_code: int | None = 0
    """How a process that submits a job ends: with another code than 0 without one; None: never."""

    def nodes(self) -> list[RayNode]:
        return [RayNode("head", "10.0.0.4", "head", self.cpus, 0.0)]

    def jobs(self) -> tuple[dict[str, Any], int]:
        return dict(self.listed), 0

    def stop(self, job: str) -> None:
        self.stopped.append(job)

    def request_workers(self, count: int) -> None:
        self.workers.append(count)

    def start(self, folder: Path, job: str, env_runners: int, output: Path) -> Any:
        self.started.append((folder.name, env_runners))
        if self.start_code == 0:
            self.becomes(job, JobStatus.RUNNING)
        ends = "sleep 600" if self.start_code is None else f"exit {self.start_code}"
        return subprocess.Popen(["sh", "-c", ends], start_new_session=True)

    def becomes(self, job: str, status: JobStatus, code: int | None = None) -> None:
        self.listed[job] = SimpleNamespace(
            submission_id=job, status=status, driver_exit_code=code, message=None
        )


class Played:
    """A queue of some experiments on a listed cluster."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = Store(home / "experiments")
        self.cluster = ListedCluster()
        monkeypatch.setattr(restart_rules, "SAVE", [sys.executable, "-c", ""])
        monkeypatch.setattr(restart_rules, "RUNS", home / "runs")
        monkeypatch.setattr(cluster_state, "CLUSTER_STATE", home / "experiments/.cluster.json")
        self.queue = Queue(self.store, self.cluster)  # type: ignore[arg-type]

    def submit(self, name: str, replaces: bool = False, **changes: Any) -> None:
        content = self.store.root / f".incoming-{name}"
        content.mkdir()
        (content / "output.log").write_text("the last line\n")
        record = Record(name, **{"key": f"{name}-key", "digest": name, **changes})
        self.store.submit(record, content, replaces)
        shutil.rmtree(content, ignore_errors=True)

    def step(self, closing: bool = False) -> bool:
        for process in self.queue._starting.values():
            process.wait()
        trains: bool = self.queue.step(closing)
        return trains

    def ends(self, name: str, status: JobStatus, code: int | None = None) -> Any:
        """Ends an experiment's job; returns the record that the queue then writes."""
        self.cluster.becomes(self.store.get(name).job, status, code)
        self.step()
        return self.store.get(name)

    def end(self) -> None:
        """Waits for the processes that the queue has started."""
        for process in [*self.queue._starting.values(), *self.queue._ends._saving]:
            process.wait()
