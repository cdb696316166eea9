"""`volley convert`: where the file goes, and what it never overwrites."""

from __future__ import annotations

from pathlib import Path

import pytest

from payload.experiment.read import read_experiment
from volley.cli import main

OLD = """
maze:
  env: Pendulum-v0
  run: PPO
  source_directory: maze
  local_dir: /tmp/results
  config: {num_sgd_iter: 6, soft_horizon: true}
  stop: {timesteps_total: 1e5}
"""


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "old").mkdir()
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "old/maze.yaml"
    path.write_text(OLD)
    return path


def test_a_file_is_printed(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(old)]) == 0
    printed = capsys.readouterr()
    new = old.with_name("new.yaml")
    new.write_text(printed.out)
    assert "\nenv: Pendulum-v1\nconfig:\n  num_epochs: 6\n" in printed.out
    assert read_experiment(new).experiment.source_directory == str(old.parent / "maze")
    assert printed.err.startswith("volley: left out: config.soft_horizon: True: ")
    assert old.read_text() == OLD


@pytest.mark.parametrize("place", ["old/new.yaml", "new.yaml"])
def test_a_file_is_written_and_finds_its_folders(old: Path, place: str) -> None:
    assert main(["convert", str(old), "-o", place]) == 0
    experiment = read_experiment(Path(place)).experiment
    assert experiment.source_directory == str(old.parent / "maze")
    assert experiment.stop.num_env_steps_sampled_lifetime == 100_000


def test_a_file_that_exists_is_overwritten_by_force_only(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["convert", str(old), "-o", str(old)]
    assert main(command) == 2
    assert capsys.readouterr().err == f"volley: -o {old}: exists; --force overwrites it\n"
    assert old.read_text() == OLD
    assert main([*command, "--force"]) == 0
    assert "num_epochs: 6" in old.read_text()


@pytest.mark.usefixtures("old")
@pytest.mark.parametrize("arguments", [["none.yaml"], ["old/maze.yaml", "-o", "none/new.yaml"]])
def test_a_file_that_cannot_be_read_or_written_is_told_in_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["convert", *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
