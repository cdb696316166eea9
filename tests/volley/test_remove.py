"""`volley rm` removes what is over from the head, after it has said what that is."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import pytest

from tests.head.relocated import relocated
from tests.volley.conftest import Laptop
from tests.volley.head import LocalHead, program

pytestmark = pytest.mark.slow


@pytest.fixture
def ended(head: LocalHead) -> LocalHead:
    """A head with an experiment that is over, of whose two files one is saved."""
    head.experiment("pong", "FINISHED")
    head.run_file("pong", "runs/a/progress.csv", b"1" * 2**20)
    saved = head.run_file("pong", "runs/a/weights", b"")
    marks = relocated("head.marks", head.root)
    mark = marks.MARKS / saved.relative_to(marks.RUNS)
    mark.parent.mkdir(parents=True)
    mark.write_text(f"{saved.stat().st_mtime_ns} 0")
    return head


def answered(laptop: Laptop, text: bytes, code: int) -> str:
    """Answers the question of `volley rm` on a terminal; returns what it has printed."""
    here, there = pty.openpty()
    with laptop.start("rm", "pong", stdin=there, stderr=subprocess.STDOUT) as process:
        os.write(here, text)
        output, _ = process.communicate(timeout=60)
    os.close(here)
    os.close(there)
    assert process.returncode == code, output
    return str(output)


def test_it_says_what_would_be_lost_and_asks(connected: Laptop, ended: LocalHead) -> None:
    shown = answered(connected, b"n\n", code=1)
    assert "pong is FINISHED and has 1.0 MiB on the head." in shown
    assert "not in the results account and would be lost: 1" in shown
    assert (ended.experiments / "pong").exists()
    assert "pong: removed from the head, 1.0 MiB" in answered(connected, b"y\n", code=0)
    assert not (ended.experiments / "pong").exists()
    assert list((ended.root / "var/lib/volley/runs").iterdir()) == []
    # Blob keeps what it has, and the head knows.
    assert list((ended.root / "var/lib/volley-identity/saved").rglob("weights"))


def test_scripts_say_yes_beforehand(connected: Laptop, ended: LocalHead) -> None:
    said = connected.volley("rm", "pong", code=2)
    assert said == "rm pong: cannot ask for confirmation here. Next: add --yes"
    answer = json.loads(connected.volley("rm", "pong", "--yes", "--json"))
    assert answer == {"name": "pong", "state": "FINISHED", "bytes": 2**20, "unsaved": 1}
    assert not (ended.experiments / "pong").exists()


@pytest.mark.parametrize("state", ["QUEUED", "STARTING", "TRAINING"])
def test_what_is_not_over_is_refused(connected: Laptop, head: LocalHead, state: str) -> None:
    head.experiment("pong", state)
    said = connected.volley("rm", "pong", "--yes", code=2)
    assert said == f"pong is {state}. Next: volley stop pong"
    assert head.record("pong")["state"] == state


def test_a_removal_whose_answer_was_lost_counts(connected: Laptop, ended: LocalHead) -> None:
    command = ended.folder / "programs/volley-head"
    whole, once = command.read_text(), ended.folder / "once"
    once.touch()
    program(
        command,
        f'if [ -e {once} ] && [ "$1" = rm ] && [ "$3" != --look ]; then\n'
        f"  rm {once}; (\n{whole}\n) > /dev/null; kill -KILL $PPID; sleep 5\nfi\n{whole}",
    )
    assert "pong: removed from the head" in connected.volley("rm", "pong", "--yes")
    assert not once.exists()
    assert not (ended.experiments / "pong").exists()
