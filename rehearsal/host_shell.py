"""Runs commands on this machine and waits for them."""

from __future__ import annotations

import subprocess
from pathlib import Path

CLEAN_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}


class CommandError(Exception):
    """A command failed; the message ends with its output."""


def run(
    *command: str | Path, text: str | None = None, timeout_s: float = 120, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Runs a command with `text` as its input; returns its output.

    Raises CommandError if the command fails, unless `check` is off.
    """
    done = subprocess.run(
        [str(part) for part in command],
        input=text,
        text=True,
        capture_output=True,
        timeout=timeout_s,
        check=False,
    )
    if check and done.returncode != 0:
        message = done.stderr.strip() or done.stdout.strip()
        raise CommandError(
            f"{' '.join(map(str, command))}: exit {done.returncode}: {message[-2000:]}"
        )
    return done
