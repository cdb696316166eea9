"""The queue and volley-head are killed after any of their writes; nothing is lost or runs twice."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from ray.job_submission import JobStatus

from head.queue import cluster_state, restart_rules, store
from head.queue.queue import Queue
from head.queue.record import Record
from head.queue.store import RefusedError, Store
from tests.head.queue.played_queue import ListedCluster

NAMES = st.sampled_from(["a", "b"])
WRITES = ("replace", "rename", "unlink", "rmdir", "mkdir")
"""The functions of os by which files appear, change and go."""
CRASH = st.sampled_from([None, None, 1, 2, 3, 4, 5, 6, 8, 10])
"""After how many writes a process is killed, if it is."""


class KilledError(BaseException):
    """What a process does from here on has no effect."""


class MortalCluster(ListedCluster):
    """A simulated Ray, which accepts the id of a job once."""

    def __init__(self, write: Callable[[], None]) -> None:
        super().__init__(cpus=2)
        self._write = write
        self.experiments: dict[str, str] = {}
        """The experiment of each job."""
        self.ended: set[tuple[str, float]] = set()
        """Experiments that have finished, with the time of their submission."""
        self.submitted_at: Callable[[str], float] = lambda _: 0.0

    def stop(self, job: str) -> None:
        super().stop(job)
        self._write()

    def start(self, folder: Path, job: str, env_runners: int, output: Path) -> Any:
        assert (folder.name, self.submitted_at(folder.name)) not in self.ended, "it runs twice"
        if job not in self.listed:
            self.started.append((folder.name, env_runners))
            self.experiments[job] = folder.name
            self.becomes(job, JobStatus.RUNNING)
        self._write()
        return SimpleNamespace(poll=lambda: 0, pid=0)

    def running(self) -> list[str]:
        return [name for name, job in self.listed.items() if not job.status.is_terminal()]


class KilledAnywhere(RuleBasedStateMachine):
    """Commands and steps of the queue, in any order, each of which may be killed at a write."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        self.left: int | None = None
        """Writes until the process is killed."""
        self.allowed: dict[str, set[str]] = {}
        """What an experiment may be: the last that was accepted, or one of a killed command."""
        self.wanted: dict[str, bool] = {}
        """Whether an experiment must finish: no person and no failure keeps it from that."""
        self.accepted: set[str] = set()
        """The names whose first submission was accepted."""
        for name in WRITES:
            self.patch.setattr(os, name, self._mortal(getattr(os, name)))
        self.patch.setattr(os, "fsync", lambda _: None)
        saved = SimpleNamespace(Popen=lambda _: SimpleNamespace(poll=lambda: 0))
        self.patch.setattr(restart_rules, "subprocess", saved)
        self.patch.setattr(restart_rules, "RUNS", self.home / "runs")
        self.patch.setattr(store, "is_going_to_sleep", lambda: False)
        self.patch.setattr(cluster_state, "CLUSTER_STATE", self.home / ".cluster.json")
        self.cluster = MortalCluster(self._write)
        self.cluster.submitted_at = lambda name: self.store.get(name).submitted

    def teardown(self) -> None:
        try:
            self.all_ends_well()
        finally:
            self.patch.undo()
            shutil.rmtree(self.home)

    @initialize()
    def start(self) -> None:
        self.store = Store(self.home / "experiments")
        self.queue = Queue(self.store, self.cluster)  # type: ignore[arg-type]
        for name in ("a", "b"):
            self.submit(name, "x", "", None)
        self.step(None, closing=False, ends=False)

    # What people do

    @rule(
        name=NAMES,
        digest=st.sampled_from("xy"),
        how=st.sampled_from(["", "now", "up"]),
        crash=CRASH,
    )
    def submit(self, name: str, digest: str, how: str, crash: int | None) -> None:
        content = Path(tempfile.mkdtemp(prefix=".incoming-", dir=self.store.root))
        (content / "output.log").write_text("the last line\n")
        record = Record(
            name, digest=digest, key=f"{name}-{digest}", now=how == "now", up=how == "up"
        )
        others = [other.name for other in self.store.records() if other.up and other.name != name]
        self.wanted |= dict.fromkeys(others, False) if how == "up" else {}
        try:
            with self.killed_after(crash):
                accepted = self.store.submit(record, content, how == "up")
                self.allowed[name] = {accepted.digest}
                self.wanted[name] = True
                self.accepted.add(name)
                return
        except RefusedError:
            return
        # An earlier replacement may be gone already; whoever has submitted this one repeats it.
        self.allowed[name] = {"x", "y"}
        self.wanted[name] = False

    @rule(name=NAMES, crash=CRASH)
    def replace(self, name: str, crash: int | None) -> None:
        """Replaces an experiment that trains, and kills the queue while it does that."""
        for record in self.store.records():
            if record.name == name and record.live:
                self.submit(name, {"x": "y", "y": "x"}[record.digest], "up", None)
                self.step(None, closing=False, ends=False)
                self.step(crash, closing=False, ends=True)

    @rule(name=NAMES, crash=CRASH)
    def submit_again(self, name: str, crash: int | None) -> None:
        """Lets an experiment finish, and kills the command that puts another in its place."""
        self.job_ends(name, 0)
        self.step(None, closing=False, ends=False)
        self.submit(name, "y", "", crash)

    @rule(name=NAMES, crash=CRASH)
    def stop(self, name: str, crash: int | None) -> None:
        if name in self.wanted:
            self.wanted[name] = False  # If it had a replacement, that is stopped too.
            self.allowed[name] |= {"x", "y"}
        with self.killed_after(crash), suppress(RefusedError):
            self.store.stop(name)

    @rule(name=NAMES, crash=CRASH)
    def resume(self, name: str, crash: int | None) -> None:
        with self.killed_after(crash), suppress(RefusedError):
            self.store.resume(name)

    # What the cluster does

    @rule(crash=CRASH, closing=st.sampled_from([False, False, True]), ends=st.booleans())
    def step(self, crash: int | None, closing: bool, ends: bool) -> None:
        for job in self.cluster.running() if ends else []:
            if job in self.cluster.stopped:
                self.cluster.becomes(job, JobStatus.STOPPED)
        with self.killed_after(crash):
            self.queue.step(closing)
            for name in self.accepted:
                self.store.get(name)  # A whole step has repaired what was cut off.

    @rule(name=NAMES, code=st.sampled_from([0, 0, 1, 2, 75, 143, None]))
    def job_ends(self, name: str, code: int | None) -> None:
        for job in self.cluster.running():
            if self.cluster.experiments[job] == name:
                status = JobStatus.SUCCEEDED if code == 0 else JobStatus.FAILED
                self.cluster.becomes(job, status, code)
                if code in (1, 2, 143):
                    self.wanted[name] = False

    @rule(name=NAMES, state=st.sampled_from(["STARTING", "TRAINING"]))
    def payload_tells(self, name: str, state: str) -> None:
        if self.store.folder(name).exists():
            status = json.dumps({"state": state, "reason": ""})
            (self.store.folder(name) / "status.json").write_text(status)

    @rule()
    def ray_is_lost(self) -> None:
        self.cluster.listed.clear()

    @rule()
    def pauses_end(self) -> None:
        for record in self.store.records():
            self.store.change(record, not_before=0.0)

    # What always holds

    @invariant()
    def no_record_is_damaged(self) -> None:
        assert [record.reason for record in self.store.records() if record.damaged] == []

    @invariant()
    def what_runs_belongs_to_a_record_that_knows_it(self) -> None:
        for job in self.cluster.running():
            record = self.store.get(self.cluster.experiments[job])
            assert (record.live, record.job) == (True, job)

    @invariant()
    def what_has_finished_stays_so(self) -> None:
        for record in self.store.records():
            if record.state == "FINISHED":
                self.cluster.ended.add((record.name, record.submitted))

    def all_ends_well(self) -> None:
        """Lets everything run to its end, without a crash."""
        for _ in range(40):
            self.queue.step(closing=False)
            for job in self.cluster.running():
                stopped = job in self.cluster.stopped
                status = JobStatus.STOPPED if stopped else JobStatus.SUCCEEDED
                self.cluster.becomes(job, status, None if stopped else 0)
            self.pauses_end()
        ended = {record.name: record for record in self.store.records()}
        assert all(record.over for record in ended.values())
        assert self.accepted <= set(ended)
        for name, record in ended.items():
            assert record.digest in self.allowed[name]
            if self.wanted[name]:
                assert record.state == "FINISHED"
        assert self.cluster.running() == []
        assert self.store.interrupted() == set()

    # How a process is killed

    @contextmanager
    def killed_after(self, writes: int | None) -> Iterator[None]:
        """Kills what happens inside after some writes; a new queue starts if it was killed."""
        self.left = writes
        try:
            yield
        except KilledError:
            self.left = None
            self.queue = Queue(self.store, self.cluster)  # type: ignore[arg-type]
        finally:
            self.left = None

    def _write(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                raise KilledError

    def _mortal(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if self.left is not None and self.left <= 0:
                raise KilledError
            answer = function(*args, **options)
            self._write()
            return answer

        return call


TestKilledAnywhere = KilledAnywhere.TestCase
TestKilledAnywhere.settings = settings(max_examples=50, stateful_step_count=30)
