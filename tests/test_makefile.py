"""What make reports on a laptop that lacks something: one line, before it installs anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.project import ROOT
from tests.started_make import run_make

pytestmark = pytest.mark.slow

Make = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Runs make in a clone where nothing is installed; the given programs come first on PATH."""
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    shutil.copy(ROOT / "Makefile", tmp_path)
    programs = tmp_path / "programs"
    programs.mkdir()

    def run(*arguments: str, **answers: str) -> subprocess.CompletedProcess[str]:
        for name, script in answers.items():
            (programs / name).write_text(script)
            (programs / name).chmod(0o755)
        path = {"PATH": f"{programs}:{os.environ['PATH']}"}
        return run_make(*arguments, folder=tmp_path, environment=path)

    return run


@pytest.mark.parametrize("target", ["rehearse", "rehearse-set-up", "rehearse-clean"])
def test_a_rehearsal_on_a_mac_is_refused_before_anything_is_installed(
    make: Make, tmp_path: Path, target: str
) -> None:
    done = make(target, uname="#!/bin/sh\necho Darwin arm64\n")
    assert done.returncode == 2
    ours, _ = done.stderr.splitlines()  # make itself prints the second line.
    assert ours == "volley: a rehearsal needs Linux on x86_64, this is Darwin arm64"
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize("version", ["3.10", "3.14"])
def test_a_python_that_no_lock_is_for_is_refused(make: Make, tmp_path: Path, version: str) -> None:
    set_version = (
        f"import sys; sys.version_info = ({version.replace('.', ', ')}); exec(sys.argv[1])"
    )
    python = f'#!/bin/sh\n[ "$1" = -c ] && exec {sys.executable} -c "{set_version}" "$2"\n'
    done = make(".venv/uv", "PYTHON=other-python", **{"other-python": python})
    assert done.returncode == 2
    ours, _ = done.stderr.splitlines()
    assert ours.startswith(f"volley needs Python 3.11, 3.12 or 3.13; other-python is {version}.")
    assert not (tmp_path / ".venv").exists()


def test_help_says_what_each_target_does(make: Make) -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shown = dict(re.findall(r"^  make ([a-z-]+) +(\S.*)$", make("help").stdout, re.MULTILINE))
    assert set(shown) == set(targets) - {"linux"}
