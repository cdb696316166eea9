"""The queue's rules for jobs that fail, get lost or are stopped, on a simulated cluster."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.job_submission import JobStatus

import head.cluster_settings
from head.queue import cluster_state, restart_rules
from head.queue.cluster_state import RayNode
from head.queue.queue import Queue
from head.queue.record import Record
from head.queue.store import Store
from infra.config.stack_settings import StackSettings
from infra.stack.head_software import cluster_settings
from tests.infra.declared_stack import REQUIRED

pytestmark = pytest.mark.slow


@dataclass
class ListedCluster:
    """A simulated cluster whose nodes and jobs the test sets."""

    cpus: int = 2
    listed: dict[str, Any] = field(default_factory=dict)
    started: list[tuple[str, int]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)
    """The numbers of workers that the queue has requested from Ray's autoscaler."""

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
        self.becomes(job, JobStatus.RUNNING)
        return subprocess.Popen([sys.executable, "-c", ""])

    def becomes(self, job: str, status: JobStatus, code: int | None = None) -> None:
        self.listed[job] = SimpleNamespace(submission_id=job, status=status, driver_exit_code=code)


class Played:
    """A queue of some experiments on a listed cluster."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = Store(home / "experiments")
        self.cluster = ListedCluster()
        monkeypatch.setattr(restart_rules, "SAVE", [sys.executable, "-c", ""])
        monkeypatch.setattr(restart_rules, "RUNS", home / "runs")
        monkeypatch.setattr(cluster_state, "CLUSTER_STATE", home / "experiments/.cluster.json")
        self.queue = Queue(self.store, self.cluster)  # type: ignore[arg-type]

    def submit(self, name: str, **changes: Any) -> None:
        content = self.store.root / f".incoming-{name}"
        content.mkdir()
        (content / "output.log").write_text("the last line\n")
        record = Record(name, key=f"{name}-key", digest=name, **changes)
        self.store.submit(record, content, False)

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


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    played = Played(tmp_path, monkeypatch)
    yield played
    for process in [*played.queue._starting.values(), *played.queue._ends._saving]:
        process.wait()


def test_the_progress_of_a_start_is_not_the_reason_for_its_end(played: Played) -> None:
    played.submit("a")
    played.step()
    status = {"state": "STARTING", "reason": "pulling image: 1 of 2 machines have it"}
    (played.store.folder("a") / "status.json").write_text(json.dumps(status))
    assert played.ends("a", JobStatus.FAILED, 1).reason == "the last line"


def test_one_that_fails_is_tried_again_later_and_keeps_its_place(played: Played) -> None:
    for name in ("a", "b", "c"):
        played.submit(name)
    played.step()
    failed = played.ends("a", JobStatus.FAILED, 1)
    assert (failed.state, failed.reason) == ("STARTING", "the last line")
    played.step()
    assert played.cluster.started == [("a", 1), ("b", 1)]
    played.store.change(failed, not_before=1.0)
    played.step()
    assert played.cluster.started == [("a", 1), ("b", 1), ("a", 1)]
    assert played.store.get("a").attempts == 2


def test_one_that_fails_ten_times_an_hour_has_failed(played: Played) -> None:
    played.submit("a")
    for _ in range(10):
        played.step()
        failed = played.ends("a", JobStatus.FAILED, 1)
        played.store.change(failed, not_before=1.0)
        played.cluster.listed.clear()
    played.step()
    record = played.store.get("a")
    assert (record.state, record.attempts) == ("FAILED", 10)
    assert record.reason == "started 10 times within an hour; the last line"


def test_one_that_is_refused_has_failed(played: Played) -> None:
    played.submit("a")
    played.step()
    assert played.ends("a", JobStatus.FAILED, 2).state == "FAILED"


def test_a_script_waits_for_others_without_a_limit_and_for_machines_with_one(
    played: Played,
) -> None:
    played.submit("a")
    waits = {"script": True, "machines_timeout_s": 0.001}
    played.submit("fits", needs={"num_env_runners": 0, "cpu_learners": 1}, **waits)
    for _ in range(3):
        played.step()
    assert played.store.get("fits").reason == "waiting for CPUs or GPUs in use by a"
    played.store.stop("fits")
    played.submit("large", needs={"num_env_runners": 0, "cpu_learners": 2}, **waits)
    for _ in range(3):
        played.step()
    record = played.store.get("large")
    assert (record.state, record.reason) == (
        "FAILED",
        "cluster_coordination_timeout_seconds: no machines for it within 0.001 s",
    )


def test_a_script_resumed_after_its_machines_did_not_come_waits_anew(played: Played) -> None:
    needs = {"num_env_runners": 0, "cpu_learners": 2}
    played.submit("a", needs=needs, script=True, machines_timeout_s=0.2)
    until = time.monotonic() + 10
    while played.store.get("a").state == "QUEUED" and time.monotonic() < until:
        played.step()
    played.store.resume("a")
    played.step()
    assert played.store.get("a").state == "QUEUED"


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "KILLED"])
def test_a_script_that_had_ended_when_ray_was_lost_does_not_start_again(
    played: Played, state: str
) -> None:
    played.submit("a", needs={"num_env_runners": 0}, script=True)
    played.step()
    status = {"state": state, "reason": "exit code 3"}
    (played.store.folder("a") / "status.json").write_text(json.dumps(status))
    played.step()
    played.cluster.listed.clear()
    played.step()
    record = played.store.get("a")
    # One that was killed with the head starts again.
    ended = (state, "exit code 3", 1)
    expected = ("STARTING", "", 2) if state == "KILLED" else ended
    assert (record.state, record.reason, record.attempts) == expected
    if state != "FINISHED":
        played.store.resume("a")
        played.step()
        assert played.store.get("a").state == "STARTING"


def test_a_job_that_ray_has_lost_is_started_again_under_its_id(played: Played) -> None:
    played.submit("a")
    played.step()
    played.step()
    job = played.store.get("a").job
    played.cluster.listed.clear()
    played.step()
    assert played.cluster.started == [("a", 1), ("a", 1)]
    assert played.store.get("a").job == job


def test_a_job_that_no_experiment_has_is_stopped(played: Played) -> None:
    played.cluster.becomes("stray", JobStatus.RUNNING)
    played.step()
    assert played.cluster.stopped == ["stray"]


def test_those_of_a_queue_that_ends_continue_with_the_next(played: Played) -> None:
    played.submit("a")
    played.step()
    assert played.step(closing=True)
    played.cluster.becomes(played.store.get("a").job, JobStatus.FAILED, 143)
    assert not played.step(closing=True)
    record = played.store.get("a")
    assert (record.state, record.job, record.not_before) == ("STARTING", "", 0.0)


def test_one_that_is_to_train_now_lets_the_other_wait_right_behind_it(played: Played) -> None:
    played.submit("a", needs={"evaluation_env_runners": 1})
    played.step()
    played.submit("later")
    played.submit("urgent", needs={"evaluation_env_runners": 1}, now=True)
    played.step()
    played.step()
    assert played.cluster.stopped == [played.store.get("a").job]
    assert played.ends("a", JobStatus.FAILED, 143).state == "QUEUED"
    played.step()
    assert played.cluster.started == [("a", 1), ("urgent", 1)]
    assert [record.name for record in played.store.records()] == ["urgent", "a", "later"]


def test_shares_change_when_nodes_come_and_when_experiments_end(played: Played) -> None:
    def told(name: str) -> str:
        path: Path = played.store.folder(name) / "env_runners"
        return path.read_text()

    played.submit("a")
    played.submit("b")
    played.step()
    played.cluster.cpus = 8
    played.step()
    assert (told("a"), told("b")) == ("3", "3")
    played.ends("a", JobStatus.SUCCEEDED)
    played.step()
    assert played.store.get("a").state == "FINISHED"
    assert told("b") == "7"


def test_workers_are_asked_for_while_an_experiment_can_use_them(
    played: Played, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = StackSettings.model_validate({**REQUIRED, "scaling": "demand", "maxWorkers": 3})
    file = tmp_path / "cluster-settings.json"
    file.write_text(cluster_settings(settings, "set", "vm").to_json())
    monkeypatch.setattr(head.cluster_settings, "CLUSTER_SETTINGS", file)
    played.step()
    assert played.cluster.workers == []
    played.submit("a")
    for _ in range(3):
        played.step()
    assert played.cluster.workers == [3]
    played.ends("a", JobStatus.SUCCEEDED)
    played.step()
    assert played.cluster.workers == [3, 0]
