"""Runs make as a user does in a shell, even if make itself started the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

OUTER = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES", "MAKE_TERMOUT", "MAKE_TERMERR")
"""Variables that make passes to its child processes: they would change another make's output."""


def shell_environment(**variables: str) -> dict[str, str]:
    """Returns this process's environment without an outer make's variables, plus those given."""
    return {key: value for key, value in os.environ.items() if key not in OUTER} | variables


def run_make(
    *arguments: str, folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs make in a folder."""
    return subprocess.run(
        ["make", *arguments],
        cwd=folder,
        env=shell_environment() if environment is None else environment,
        capture_output=True,
        text=True,
        check=False,
    )
