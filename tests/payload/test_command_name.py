"""Printed commands can be pasted into the shell that started the process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from payload.command_line import command_name, ui_command


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with a virtual environment that is not activated; its folder is the current one."""
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    (programs / "volley").write_text("#!/bin/sh\n")
    (programs / "volley").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return programs


@pytest.mark.usefixtures("environment")
def test_without_an_activated_environment_its_path_is_typed() -> None:
    assert command_name() == ".venv/bin/volley"
    assert ui_command(Path("results")) == ".venv/bin/volley ui"


def test_in_another_folder_the_whole_path_is_typed(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command_name(absolute=True) == str(environment / "volley")
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    assert command_name() == str(environment / "volley")


def test_in_an_activated_environment_the_name_is_typed(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{environment}:/usr/bin:/bin")
    assert command_name() == "volley"


def test_a_link_to_the_script_on_the_path_is_typed_by_its_name(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/volley").symlink_to(environment / "volley")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert command_name() == "volley"


def test_another_volley_on_the_path_is_not_meant(
    environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/volley").write_text("#!/bin/sh\n")
    (tmp_path / "bin/volley").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{environment}:/usr/bin:/bin")
    assert command_name() == ".venv/bin/volley"


@pytest.mark.usefixtures("environment")
def test_other_results_are_named() -> None:
    assert ui_command(Path("my results")) == ".venv/bin/volley ui --results 'my results'"
