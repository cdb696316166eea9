"""Experiments, Ray jobs of others, kernels and logged-in users keep the head awake."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from head.sleep.idle import LOOKS
from tests.head.sleep.sleeping_head import SleepingHead

pytestmark = pytest.mark.slow


def is_idle(head: SleepingHead) -> bool:
    head.run()
    return head.sleep["idle_since"] is not None


def test_an_idle_head_says_since_when_and_when_it_sleeps(head: SleepingHead) -> None:
    head.run()
    since = head.sleep["idle_since"]
    assert since == pytest.approx(time.time(), abs=30)
    head.run()
    assert head.sleep["idle_since"] == since
    assert head.sleep["sleeps_at"] == since + 30 * 60


def test_it_does_not_sleep_before(head: SleepingHead) -> None:
    head.run_when_idle_for(29)
    assert head.calls == []


@pytest.mark.parametrize("settings", [{"sleep_after_minutes": 0}, {"scaling": "cpu"}])
def test_some_clusters_never_sleep(head: SleepingHead, settings: dict[str, object]) -> None:
    head.run()
    head.set(**settings)
    head.run_when_idle_for(600)
    assert head.calls == []


@pytest.mark.parametrize("state", ["QUEUED", "STARTING", "TRAINING"])
def test_an_experiment_that_is_not_over_keeps_it_awake(head: SleepingHead, state: str) -> None:
    head.experiment("pong", state)
    assert not is_idle(head)


@pytest.mark.parametrize("state", ["FINISHED", "FAILED", "STOPPED"])
def test_one_that_is_over_does_not(head: SleepingHead, state: str) -> None:
    head.experiment("pong", state)
    assert is_idle(head)


def test_a_ray_driver_keeps_it_awake(head: SleepingHead) -> None:
    head.queue_sees(drivers=1)
    assert not is_idle(head)


def test_a_kernel_keeps_it_awake_and_jupyterlab_without_one_does_not(head: SleepingHead) -> None:
    with head.jupyter(kernels=2):
        assert not is_idle(head)
        assert head.ask("status")["jupyter"] == {"kernels": 2}
    with head.jupyter(kernels=0):
        assert is_idle(head)
        assert head.ask("status")["jupyter"] == {"kernels": 0}
    assert head.ask("status")["jupyter"] is None


def test_what_cannot_be_told_counts_as_use(head: SleepingHead) -> None:
    head.queue_sees(age_s=121)
    assert not is_idle(head)
    (head.home / "experiments/.cluster.json").write_text("{")
    assert not is_idle(head)


@contextmanager
def sshd_runs(folder: Path, command: str) -> Iterator[list[int]]:
    """Runs a process named sshd and its child; yields their process IDs."""
    sshd = folder / "sshd"
    sshd.write_text(f"#!/bin/bash\n{command} &\necho $!\nwait\n")
    sshd.chmod(0o755)
    with subprocess.Popen([sshd], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        child = int(server.stdout.readline())
        time.sleep(0.2)  # Wait until the child has executed its command.
        try:
            yield [server.pid, child]
        finally:
            os.kill(child, signal.SIGKILL)


def shell(folder: Path, name: str) -> Path:
    """Returns a command with this name that never ends."""
    path = folder / name
    path.write_text("#!/bin/bash\nwhile :; do sleep 0.1; done\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("name", "logged_in"),
    [("bash", True), ("sshd", False), ("sshd-session", False), ("rsync", True)],
)
def test_a_child_of_sshd_is_a_login_unless_it_is_sshd(
    head: SleepingHead, tmp_path: Path, name: str, logged_in: bool
) -> None:
    (tmp_path / "child").mkdir()
    with sshd_runs(tmp_path, str(shell(tmp_path / "child", name))) as processes:
        for pid in processes:
            head.sees_process(pid)
        assert is_idle(head) == (not logged_in)
    assert is_idle(head)


@pytest.mark.parametrize(
    ("words", "logged_in"),
    [
        ("status", False),
        ("status --name pong", False),
        ("tensorboard --port 20000", False),
        ("logs pong --follow", True),
        ("status --name pong bash", True),
    ],
)
def test_who_only_looks_is_not_logged_in(
    head: SleepingHead, tmp_path: Path, words: str, logged_in: bool
) -> None:
    volley_head = shell(tmp_path, "volley-head")
    child = f"(cd {tmp_path}; exec -a sudo /bin/bash {volley_head.name} {words})"
    with sshd_runs(tmp_path, child) as processes:
        for pid in processes:
            head.sees_process(pid)
        assert is_idle(head) == (not logged_in)


@pytest.mark.parametrize("command", ["bash -c sudo volley-head status", "sh -c volley-head status"])
def test_a_status_by_the_shell_of_sshd_is_none_either(command: str) -> None:
    assert LOOKS.fullmatch(command)
    assert not LOOKS.fullmatch(f"{command}; sleep 60")
