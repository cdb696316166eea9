"""Which source is running."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git_commit() -> str:
    """Returns the commit of this package's source, with "-dirty" if files differ from it."""
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
