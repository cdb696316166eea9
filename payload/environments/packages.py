"""Installs what pip_packages and pip_requirements_file name, beside the environment that trains."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from payload.errors import UserError
from payload.experiment.settings import Experiment

MISSING = re.compile(r"^ \+ (\S+==\S+)", re.MULTILINE)
REASON = re.compile(r"[×╰─▶│ ]+")
"""uv draws a tree around its reasons."""


def install_packages(experiment: Experiment, packages: Path) -> Path | None:
    """Installs what the environment that trains does not have; returns the folder, or None.

    What it has keeps its version: another one of numpy, gymnasium or torch in the environment
    runners alone would fail in ways that are hard to explain.

    Raises:
        UserError: A package does not exist, or needs another version of one that is there.
    """
    wanted = list(experiment.pip_packages)
    if experiment.pip_requirements_file is not None:
        wanted += Path(experiment.pip_requirements_file).read_text().splitlines()
    if not wanted:
        return None
    here = _distributions()
    name = hashlib.sha256("\n".join([sys.version, *here, *wanted]).encode()).hexdigest()[:12]
    final = packages / name
    if final.is_dir():
        return final
    aside = packages / f".{name}.{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        print(f"Installing {', '.join(experiment.pip_packages) or 'packages'} ...", flush=True)
        (aside / "constraints.txt").write_text("\n".join(here))
        (aside / "requirements.txt").write_text("\n".join(wanted))
        constraints = ("--constraint", str(aside / "constraints.txt"))
        plan = _uv("--dry-run", *constraints, "--requirement", str(aside / "requirements.txt"))
        missing = MISSING.findall(plan)
        (aside / "site").mkdir()
        if missing:
            _uv("--no-deps", "--target", str(aside / "site"), *missing)
        # Two trainings may install the same packages at once.
        if not final.is_dir():
            (aside / "site").rename(final)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return final


def _distributions() -> list[str]:
    """Returns name==version of everything in the environment that trains."""
    versions = {
        distribution.metadata["Name"]: distribution.version
        for distribution in importlib.metadata.distributions()
    }
    return sorted(f"{name}=={version}" for name, version in versions.items())


def _uv(*arguments: str) -> str:
    """Runs `uv pip install`; returns what it says."""
    program = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    program = program or shutil.which("uv")
    if program is None:
        raise UserError("pip_packages: uv is not on the PATH; it installs them")
    command: Sequence[str] = (program, "pip", "install", "--python", sys.executable, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UserError(f"pip_packages: {REASON.sub(' ', done.stderr).strip()}")
    return done.stderr
