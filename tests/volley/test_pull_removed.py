"""`volley pull` of runs that the head has removed from its disk, and that Blob has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.volley.conftest import Laptop
from tests.volley.head import LocalHead, program

pytestmark = pytest.mark.slow

RESTORES = """\
[ "$*" = "start restore-runs@pong-key.service" ] || exit 5
mkdir -p {runs}/pong-key/runs/a
echo 1 > {runs}/pong-key/runs/a/progress.csv
"""
"""systemctl with the unit's effect, which tests/head/results/test_restore_runs.py tests."""


@pytest.fixture
def removed(head: LocalHead) -> Path:
    """The program systemctl of a head without an experiment's runs."""
    head.experiment("pong", "FINISHED")
    head.write("var/lib/volley-identity/saved/pong-key/runs/a/progress.csv", b"mark")
    return head.folder / "programs/systemctl"


def test_the_head_restores_them_before(connected: Laptop, head: LocalHead, removed: Path) -> None:
    program(removed, RESTORES.format(runs=head.root / "var/lib/volley/runs"))
    connected.volley("pull", "pong")
    assert (connected.folder / "results/pong/runs/a/progress.csv").read_text() == "1\n"
    # They are there now.
    program(removed, "exit 5")
    connected.volley("pull", "pong")


def test_a_failure_says_where_to_look(connected: Laptop, removed: Path) -> None:
    program(removed, "exit 1")
    said = connected.volley("pull", "pong", code=2)
    assert said == (
        "the head cannot restore the runs of pong. "
        "Next: volley logs --unit restore-runs@pong-key.service"
    )


def test_an_experiment_that_has_no_runs_yet_has_nothing_to_restore(
    connected: Laptop, head: LocalHead
) -> None:
    head.experiment("pong", "QUEUED")
    program(head.folder / "programs/systemctl", "exit 1")
    assert "0 new files" in connected.volley("pull", "pong")
