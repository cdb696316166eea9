"""Secrets reach the job's driver, and no file but one."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.head.relocated import relocated
from tests.volley.conftest import Laptop
from tests.volley.head import LocalHead

pytestmark = pytest.mark.slow

VALUE = 'it\'s $HOME; `rm` "x"\nand a line'


@pytest.fixture
def submitted(
    connected: Laptop, head: LocalHead, experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The file with the secrets of an experiment that was submitted."""
    monkeypatch.setenv("API_KEY", VALUE)
    monkeypatch.setenv("TOKEN", "t0ken")
    with experiment.open("a") as file:
        file.write("secrets: [TOKEN]\n")
    connected.volley("submit", str(experiment), "--secret", "API_KEY")
    return head.root / "var/lib/volley/.secrets/cart"


def test_a_secret_is_in_a_file_of_its_owner_and_nowhere_else(
    submitted: Path, head: LocalHead
) -> None:
    assert stat.S_IMODE(submitted.stat().st_mode) == 0o600
    assert stat.S_IMODE(submitted.parent.stat().st_mode) == 0o700
    holding = [
        path
        for path in head.root.rglob("*")
        if path.is_file() and (b"t0ken" in path.read_bytes() or b"and a line" in path.read_bytes())
    ]
    assert holding == [submitted]


def test_the_jobs_driver_has_the_secrets(submitted: Path, head: LocalHead) -> None:
    code = "import os; print(ascii(os.environ['API_KEY']), os.environ['TOKEN'])"
    folder = head.experiments / "cart"
    plan = relocated("head.queue.plan", head.root)
    line = plan.entrypoint([sys.executable, "-c", code], folder)
    subprocess.run(["sh", "-c", line], check=True, timeout=60)
    assert (folder / plan.OUTPUT).read_text() == f"{VALUE!a} t0ken\n"
    assert VALUE not in line
    assert submitted.exists()


def test_a_later_experiment_of_the_name_has_none_of_them(
    submitted: Path, connected: Laptop, experiment: Path
) -> None:
    connected.volley("stop", "cart")
    text = experiment.read_text().replace("secrets: [TOKEN]\n", "")
    experiment.write_text(text)
    connected.volley("submit", str(experiment))
    assert not submitted.exists()


@pytest.mark.parametrize("words", [(), ("--secret", "API_KEY")])
def test_a_submit_that_is_refused_changes_no_secrets(
    submitted: Path,
    connected: Laptop,
    experiment: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    before = submitted.read_text()
    monkeypatch.setenv("API_KEY", "another")
    text = experiment.read_text().replace("secrets: [TOKEN]\n", "")
    experiment.write_text(f"{text}notes: other files\n")
    refused = connected.volley("submit", str(experiment), *words, code=2)
    assert "with other files" in refused
    assert submitted.read_text() == before
    assert connected.volley("stop", "cart")
    connected.volley("rm", "cart", "--yes")
    assert list(submitted.parent.iterdir()) == []


def test_a_new_value_of_a_secret_arrives_although_nothing_else_has_changed(
    submitted: Path, connected: Laptop, experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "t0ken2")
    connected.volley("submit", str(experiment), "--secret", "API_KEY")
    assert "export TOKEN=t0ken2\n" in submitted.read_text()


def test_a_secret_that_is_not_set_is_told_before_anything_is_sent(
    connected: Laptop, head: LocalHead, experiment: Path
) -> None:
    refused = connected.volley("submit", str(experiment), "--secret", "NO_SUCH", code=2)
    assert refused == ("--secret NO_SUCH: is not set in the environment. Next: export NO_SUCH=...")
    assert head.connections() == 0


def test_the_same_experiment_again_keeps_its_secrets(
    submitted: Path, connected: Laptop, experiment: Path
) -> None:
    connected.volley("submit", str(experiment), "--name", "other", "--secret", "API_KEY")
    connected.volley("submit", str(experiment), "--name", "other", "--priority", "5")
    assert "API_KEY" in submitted.with_name("other").read_text()


def test_a_secret_has_the_name_of_a_variable(connected: Laptop, experiment: Path) -> None:
    said = connected.volley("submit", str(experiment), "--secret", "A-B", code=2)
    assert said == "--secret A-B: must be letters, digits and _, no digit first"
