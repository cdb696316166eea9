"""A Python 3.10 of this machine, if it has one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def _python() -> Path | None:
    for candidate in (shutil.which("python3.10"), *_pyenv()):
        if candidate and _version(candidate) == "3.10":
            return Path(candidate)
    return None


def _pyenv() -> list[str]:
    return [str(path) for path in Path.home().glob(".pyenv/versions/3.10*/bin/python3.10")]


def _version(python: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip()


PYTHON = _python()
