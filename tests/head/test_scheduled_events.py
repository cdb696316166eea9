"""A machine's reaction when Azure announces what it will do to it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from head import scheduled_events
from head.scheduled_events import STAYS_AFTER, leave, look

pytestmark = pytest.mark.slow
QUICK = '#!/bin/sh\necho "$@" >> {log}\n'
SLOW = QUICK + '[ "$(grep -c stop {log})" -gt 1 ] || exec sleep 5\n'
"""A command whose first stop takes 5 s."""
UNITS = "experiments.service ray-head.service"
STOP, START = f"stop {UNITS}", f"start --no-block {UNITS}"


class Watched:
    """A machine whose systemctl and metadata service keep what they are asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._log, self._program = folder / "called", folder / "systemctl"
        self._log.touch()
        self.acknowledged: list[str] = []
        self.systemctl(QUICK)
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        monkeypatch.setenv("STOP_BEFORE_EVICTION", UNITS)
        monkeypatch.setattr(scheduled_events, "STOPPED", folder / "stopped")
        monkeypatch.setattr(scheduled_events, "ask", self._ask)

    def systemctl(self, text: str) -> None:
        self._program.write_text(text.format(log=self._log))
        self._program.chmod(0o755)

    def called(self) -> list[str]:
        return self._log.read_text().splitlines()

    def _ask(self, _: str, body: dict[str, Any]) -> None:
        self.acknowledged += [request["EventId"] for request in body["StartRequests"]]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(tmp_path, monkeypatch)


def event(kind: str, status: str = "Scheduled", name: str = "id") -> dict[str, Any]:
    return {"EventType": kind, "EventId": name, "EventStatus": status}


def test_a_training_that_does_not_end_in_time_is_killed_before_the_machine_goes(
    machine: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.systemctl(SLOW)
    monkeypatch.setitem(scheduled_events.STOP_S, "Preempt", 0.5)
    leave(event("Preempt"))
    assert machine.called() == [STOP, "kill --signal=SIGKILL experiments.service", STOP]
    assert machine.acknowledged == ["id"]


@pytest.mark.parametrize("kind", ["Preempt", "Terminate", "Reboot", "Redeploy"])
def test_ray_stops_once_for_each_notice(machine: Watched, kind: str) -> None:
    for _ in range(3):  # Others on the same host may still have to acknowledge it.
        look([event(kind)], 0)
    assert (machine.called(), machine.acknowledged) == ([STOP], ["id"])


@pytest.mark.parametrize("kind", ["Reboot", "Redeploy"])
def test_after_the_reboot_its_notice_stops_nothing(machine: Watched, kind: str) -> None:
    look([event(kind, "Started")], 0)
    assert machine.called() == []


@pytest.mark.parametrize("kind", ["Preempt", "Terminate", "Reboot", "Redeploy"])
def test_ray_starts_again_when_azure_has_withdrawn_the_notice(machine: Watched, kind: str) -> None:
    look([event(kind)], 0)
    # An eviction's notice ends moments before the machine does.
    look([], STAYS_AFTER - 1)
    assert machine.called() == [STOP]
    for _ in range(2):
        look([], STAYS_AFTER)
    assert machine.called() == [STOP, START]
    look([event(kind, name="another")], 0)
    assert machine.called() == [STOP, START, STOP]


def test_a_machine_that_no_notice_has_stopped_starts_nothing(machine: Watched) -> None:
    look([], STAYS_AFTER)
    assert machine.called() == []


@pytest.mark.parametrize(
    ("kind", "sent"),
    [("Preempt", True), ("Terminate", True), ("Reboot", False), ("Redeploy", False)],
)
def test_before_the_head_is_taken_away_the_workers_are_sent_home(
    machine: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, sent: bool
) -> None:
    program = tmp_path / "send.py"
    log = tmp_path / "called"
    program.write_text(f"open({str(log)!r}, 'a').write('workers\\n')")
    monkeypatch.setenv("BEFORE_EVICTION", f"{sys.executable} {program}")
    look([event(kind)], 0)
    # Ray's autoscaler could ask for others until it has stopped.
    assert machine.called() == (["workers", STOP, "workers"] if sent else [STOP])


def test_an_azure_that_does_not_answer_keeps_no_training_from_ending(
    machine: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEFORE_EVICTION", "sleep 60")
    monkeypatch.setattr(scheduled_events, "WORKERS_S", 0.1)
    look([event("Preempt")], 0)
    assert (machine.called(), machine.acknowledged) == ([STOP], ["id"])


def test_a_notice_seen_by_the_loop_is_the_machines_own(
    machine: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Callable[[], dict[str, Any]]] = [
        lambda: {"name": "worker0"},
        lambda: {"Events": [{**event("Reboot"), "Resources": ["worker1"]}]},
        lambda: {"Events": [{**event("Freeze"), "Resources": ["worker0"]}]},
    ]
    asked = iter(answers)
    monkeypatch.setattr(scheduled_events, "POLL_S", 0)
    monkeypatch.setattr(scheduled_events, "ask", lambda _: next(asked)())
    with pytest.raises(StopIteration):
        scheduled_events.main()
    assert machine.called() == []
