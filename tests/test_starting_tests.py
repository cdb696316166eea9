"""Tests do not depend on how they are started: by make, with another home or umask, by any user."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project import ROOT

pytestmark = pytest.mark.slow

SENSITIVE = (
    "tests/test_conftest.py",
    "tests/test_makefile.py",
    "tests/infra/test_documented.py",
    "tests/infra/up/test_deploy.py",
)
"""Tests that start programs, including make, and write programs."""
WITHOUT_PULUMI = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
MAKEFILE = """\
check:
\t+umask 077; exec {command}
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may write to; pytest's own folders are closed to others."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


def run_tests(folder: Path) -> list[str]:
    options = ("-q", "-p", "no:cacheprovider", "--basetemp", str(folder / "pytest"))
    return [sys.executable, "-B", "-m", "pytest", *options, *SENSITIVE]


def succeed(command: list[str], user: str | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={"PATH": WITHOUT_PULUMI},
        user=user,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_make_starts_them_without_a_home_and_with_a_closed_umask(folder: Path) -> None:
    makefile = folder / "Makefile"
    makefile.write_text(MAKEFILE.format(command=shlex.join(run_tests(folder))))
    succeed(["make", "-j2", "--print-directory", "-f", str(makefile), "check"])


def test_an_ordinary_user_starts_them(folder: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("this user is an ordinary one")
    try:
        subprocess.run([sys.executable, "--version"], user="nobody", check=True)
    except (PermissionError, subprocess.CalledProcessError):
        pytest.skip(f"other users may not run {sys.executable}")
    succeed(run_tests(folder), user="nobody")
