"""run_training.py, which runs the experiment on the head: its waits and its end, by import."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.infra.boot_scripts import load


@pytest.fixture(scope="module")
def train() -> ModuleType:
    return load("run_training")


# Workers that come back


def test_a_first_start_waits_for_nobody(train: ModuleType) -> None:
    assert train.wait_for_cpus(0, lambda: 4) == 4


@pytest.mark.slow
def test_workers_that_rejoin_are_waited_for(
    train: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    counts = iter([4, 4, 8, 12])
    assert train.wait_for_cpus(12, lambda: next(counts)) == 12
    said = capfd.readouterr().out
    assert said.startswith("4 CPUs are there, the training had 12: waiting for its workers")
    assert said.endswith("12 CPUs are there\n")


@pytest.mark.parametrize(("content", "expected"), [(None, 0), ("12", 12), ("", 0)])
def test_how_many_cpus_there_were_is_remembered(
    tmp_path: Path, content: str | None, expected: int
) -> None:
    if content is not None:
        (tmp_path / "cpus").write_text(content)
    assert load("run_training", home=tmp_path).remembered_cpus() == expected


def test_workers_that_are_gone_are_not_waited_for_forever(
    train: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "WORKERS_TIMEOUT_S", 0.1)
    assert train.wait_for_cpus(12, lambda: 4) == 4


# The end


class Jobs:
    """Ray's jobs: one that runs until it is stopped, and a second longer."""

    def __init__(self, train: ModuleType) -> None:
        self._status = train.JobStatus
        self.stopped_at: list[float] = []

    def get_job_status(self, _: str) -> Any:
        over = self.stopped_at and time.monotonic() > self.stopped_at[0] + 1
        return self._status.STOPPED if over else self._status.RUNNING

    def get_job_logs(self, _: str) -> str:
        return "line\nlast line\n" if self.stopped_at else "line\n"

    def get_job_info(self, _: str) -> Any:
        return SimpleNamespace(driver_exit_code=143)

    def stop_job(self, _: str) -> None:
        self.stopped_at.append(time.monotonic())


@pytest.fixture
def sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm")
@pytest.mark.slow
def test_a_training_that_is_told_to_stop_stops_at_once_and_is_followed_to_its_end(
    train: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = Jobs(train)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGTERM))
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    before = time.monotonic()
    assert train.follow(jobs, "job") == (train.JobStatus.STOPPED, 143)
    # An eviction is told 30 s ahead: none of them is slept away.
    assert len(jobs.stopped_at) == 1
    assert jobs.stopped_at[0] - before < 1.5
    assert time.monotonic() - before < 4
    assert capfd.readouterr().out == "line\nlast line\n"
