"""Runs pulumi at this terminal, also where a killed run has left a lock or a torn file."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

COMMANDS = ("up", "destroy")
"""The commands that change resources."""
LOCK = re.compile(r"created by \S+@(?P<host>\S+) \(pid (?P<pid>\d+)\)")
"""Pulumi's message about a lock, if the state is in files."""
TORN = "failed to load checkpoint: EOF"


@dataclass(frozen=True)
class Done:
    """How a run of pulumi ended."""

    exit_code: int
    stdout: str
    """Empty if it was shown instead of read."""
    stderr: str
    errors: str
    """Its diagnostics as JSON, which a terminal shows in pulumi's display."""


def pulumi(*arguments: str, read: bool = False) -> Done:
    """Runs pulumi at this terminal; removes a lock or a torn file that a killed run has left.

    Args:
        read: Whether to read its output instead of showing it.
    """
    done = _run(arguments, read)
    if done.exit_code != 0 and TORN in done.stderr and remove_torn_attributes():
        done = _run(arguments, read)
    locks = list(LOCK.finditer(done.stderr))
    if (
        done.exit_code != 0
        and locks
        and all(is_dead(lock["host"], int(lock["pid"])) for lock in locks)
    ):
        print("The run that locked the stack was killed; removing its lock.", flush=True)
        _run(("cancel", "--yes"), read=True)
        done = _run(arguments, read)
    return done


def remove_torn_attributes() -> bool:
    """Removes empty attribute files beside a state that is in files; returns whether any was.

    Pulumi replaces the state's file atomically, but not this one; the state is complete without it.
    """
    url = json.loads(_run(("whoami", "--json"), read=True).stdout or "{}").get("url", "")
    if not url.startswith("file://"):
        return False
    folder = Path(url.removeprefix("file://")).expanduser() / ".pulumi"
    torn = [file for file in folder.rglob("*.attrs") if file.stat().st_size == 0]
    for file in torn:
        print(f"A killed run left {file} empty; removing it.", flush=True)
        file.unlink()
    return bool(torn)


def is_dead(host: str, pid: int) -> bool:
    """Whether a process of this host is not a running pulumi; False for another host.

    A killed process remains as a zombie until its parent waits; not every container's init does.
    """
    if host != socket.gethostname():
        return False
    command = ["ps", "-p", str(pid), "-o", "stat=", "-o", "comm="]
    state = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return "pulumi" not in state or state.startswith("Z")


def _run(arguments: Sequence[str], read: bool) -> Done:
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "events.json"
        log = ["--event-log", str(events)] if arguments[0] in COMMANDS else []
        stderr: list[str] = []
        with subprocess.Popen(
            ["pulumi", *arguments, *log],
            env={**os.environ, "PULUMI_DEBUG_COMMANDS": "true"},
            stdout=subprocess.PIPE if read else None,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            copying = threading.Thread(target=_copy, args=(process.stderr, stderr, not read))
            copying.start()
            stdout = process.stdout.read() if process.stdout else ""
            _wait(process)
            copying.join()
        errors = events.read_text() if events.exists() else ""
    return Done(process.returncode, stdout, "".join(stderr), errors)


def _copy(stream: IO[str], kept: list[str], shown: bool) -> None:
    for line in stream:
        kept.append(line)
        if shown:
            print(line, end="", file=sys.stderr, flush=True)


def _wait(process: subprocess.Popen[str]) -> None:
    """Waits for pulumi, which finishes its operations before it ends on a signal."""
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        while process.poll() is None:
            try:
                process.wait()
            except KeyboardInterrupt:
                continue
    finally:
        signal.signal(signal.SIGTERM, before)
