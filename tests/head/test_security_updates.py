"""OpenSSH and OpenSSL are updated once a day, while nothing trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from head import __file__ as package
from tests.head.installed_head import InstalledHead
from tests.head.sleep.sleeping_head import SETTINGS

pytestmark = pytest.mark.slow

UNIT = Path(package).parent / "units/security-updates.service"
DAY = 86_400


class Head(InstalledHead):
    """A head where nothing trains, whose stack has securityUpdates."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.set(security_updates=True)
        (self.root / "run").mkdir(exist_ok=True)

    def set(self, **settings: Any) -> None:
        text = json.dumps({**SETTINGS, "endpoint": "", **settings})
        self.settings.write_text(text)

    def experiment(self, state: str) -> None:
        folder = self.experiments / "pong"
        folder.mkdir(exist_ok=True)
        (folder / "state.json").write_text(json.dumps({"name": "pong", "state": state}))

    def updated(self, ago_s: float) -> None:
        stamp = self.root / "run/security-updates"
        stamp.touch()
        os.utime(stamp, (time.time() - ago_s,) * 2)

    def asks(self) -> subprocess.CompletedProcess[str]:
        """Runs what systemd asks first; exit code 0 installs the updates."""
        command = [sys.executable, "-S", "-m", "head.security_updates"]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path)


@pytest.mark.parametrize("state", ["QUEUED", "FINISHED", "FAILED"])
def test_updates_are_installed_while_nothing_trains(head: Head, state: str) -> None:
    assert head.asks().returncode == 0
    head.experiment(state)
    done = head.asks()
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("state", ["STARTING", "TRAINING", "RUNNING"])
def test_updates_wait_for_what_trains_and_say_so(head: Head, state: str) -> None:
    head.experiment(state)
    done = head.asks()
    assert (done.returncode, done.stdout) == (1, "security updates wait for pong\n")


def test_updates_are_installed_once_a_day(head: Head) -> None:
    head.updated(ago_s=DAY - 60)
    assert head.asks().returncode == 1
    head.updated(ago_s=DAY + 60)
    assert head.asks().returncode == 0


def test_a_stack_without_the_setting_installs_none(head: Head) -> None:
    head.set(security_updates=False)
    assert head.asks().returncode == 1
    head.settings.unlink()
    assert head.asks().returncode == 1


def test_root_runs_nothing_but_the_package_manager() -> None:
    lines = [line for line in UNIT.read_text().splitlines() if line.startswith("Exec")]
    as_root = [line.partition("+")[2].split()[0] for line in lines if "=+" in line or "=-+" in line]
    assert as_root == ["/usr/bin/dpkg", "/usr/bin/apt-get", "/usr/bin/apt-get", "/usr/bin/touch"]
    assert len(lines) == len(as_root) + 1
    assert "\nUser=ray\n" in UNIT.read_text()


def test_status_says_when(head: Head) -> None:
    def updated() -> float | None:
        answer = json.loads(head.volley_head("status").stdout)["head"]["updated"]
        return None if answer is None else float(answer)

    assert updated() is None
    head.updated(ago_s=0)
    assert updated() == pytest.approx(time.time(), abs=30)
