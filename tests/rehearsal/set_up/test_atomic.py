"""The set-up makes each artifact completely or not at all, and leaves no process or mount."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rehearsal.host_shell import CommandError
from rehearsal.set_up import atomic
from rehearsal.set_up.atomic import in_namespaces, made_aside
from tests.project import ROOT

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root is needed for namespaces")


def test_a_thing_is_there_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "home/thing"
    with made_aside(target) as aside:
        aside.mkdir()
        assert not target.exists()
    assert target.is_dir()
    (target / "old").touch()
    with pytest.raises(KeyboardInterrupt), made_aside(target) as aside:
        _interrupted_in(aside)
    assert list(target.parent.iterdir()) == []


def test_what_an_interrupted_set_up_left_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "thing.making").mkdir()
    (tmp_path / "thing.making/half").touch()
    with made_aside(tmp_path / "thing") as aside:
        assert not aside.exists()
        aside.mkdir()
    assert list((tmp_path / "thing").iterdir()) == []


@pytest.mark.slow
@needs_root
def test_mounts_end_with_the_script(tmp_path: Path) -> None:
    script = 'mount -t tmpfs tmpfs "$1"; touch "$1/inside"; cat /proc/mounts > "$2"'
    mounts = tmp_path / "mounts"
    (tmp_path / "mounted").mkdir()
    in_namespaces(script, tmp_path / "mounted", mounts, variables={}, timeout_s=20)
    assert str(tmp_path / "mounted") in mounts.read_text()
    assert list((tmp_path / "mounted").iterdir()) == []


@pytest.mark.slow
@needs_root
def test_a_failing_script_says_why_and_keeps_the_variables_to_itself() -> None:
    with pytest.raises(CommandError, match="no such mirror") as caught:
        in_namespaces(
            "echo no such mirror >&2; exit 3",
            variables={"PIP_INDEX_URL": "https://me:secret@pypi.example"},
            timeout_s=20,
        )
    assert "secret" not in str(caught.value)


@pytest.mark.slow
@needs_root
def test_a_script_that_a_network_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic, "RETRY_PAUSES_S", (0, 0))
    script = 'echo >> "$1"; (($(wc -l < "$1") == 3))'
    tries = tmp_path / "tries"
    in_namespaces(script, tries, variables={}, timeout_s=20, retry=True)
    with pytest.raises(CommandError):
        in_namespaces(script, tries, variables={}, timeout_s=20, retry=True)
    assert tries.read_text() == 6 * "\n"


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_processes_end_with_the_set_up_whatever_ends_it(
    tmp_path: Path, how: signal.Signals
) -> None:
    beat = tmp_path / "beat"
    program = (
        "import sys; from rehearsal.set_up.atomic import in_namespaces\n"
        "script = 'trap : INT TERM; while :; do date +%N > \"$1\"; sleep 0.05; done'\n"
        "in_namespaces(script, sys.argv[1], variables={}, timeout_s=60)"
    )
    command = [sys.executable, "-c", program, str(beat)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        while not (beat.exists() and beat.read_text()):
            time.sleep(0.05)
        process.send_signal(how)
    time.sleep(0.5)
    last = beat.read_text()
    time.sleep(0.5)
    assert beat.read_text() == last


def _interrupted_in(folder: Path) -> None:
    folder.mkdir()
    raise KeyboardInterrupt
