"""A machine's reaction when Azure announces its eviction."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.infra.boot.boot_scripts import load

pytestmark = pytest.mark.slow
EVENT = {"EventType": "Preempt", "EventId": "id"}
SLOW = '#!/bin/sh\necho "$@" >> {log}\n[ "$(grep -c stop {log})" -gt 1 ] || exec sleep 5\n'
"""A command whose first stop takes 5 s."""


@pytest.fixture
def watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(SLOW.format(log=tmp_path / "called"))
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("STOP_BEFORE_EVICTION", "experiments.service ray-head.service")
    return load("watch_scheduled_events")


def test_a_training_that_does_not_end_in_time_is_killed_before_the_machine_goes(
    watcher: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledged = []
    monkeypatch.setattr(watcher, "STOP_S", 0.5)
    monkeypatch.setattr(watcher, "ask", lambda _, body: acknowledged.append(body))
    watcher.leave(EVENT)
    stop = "stop experiments.service ray-head.service"
    kill = "kill --signal=SIGKILL experiments.service"
    assert (tmp_path / "called").read_text().splitlines() == [stop, kill, stop]
    assert acknowledged == [{"StartRequests": [{"EventId": "id"}]}]
