"""Processes that outlive their parent; a file identifies each."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rehearsal.host_shell import CLEAN_ENVIRONMENT

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
WRITE_PID_FILE = f"""
echo "$$ $(cut -d' ' -f22 /proc/$$/stat) $(cat {BOOT_ID})" > "$0"
exec "$@"
"""
"""The process writes the file itself, so it can be found even if its parent is killed."""
PAUSE_S = 0.05


class StartError(Exception):
    """A process did not start; the message ends with its last lines of output."""


def start(
    command: Sequence[str | Path],
    *,
    pid_file: Path,
    log: Path,
    address: str,
    port: int,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = 30,
) -> None:
    """Starts a command unless it runs; returns when it accepts connections.

    It gets its own session and log, and a clean environment. Raises StartError if it ends, does not
    answer in time, or if another process has its address.
    """
    if alive(pid_file):
        return
    if _accepts(address, port):
        raise StartError(f"{address}:{port} is taken by another process")
    pid = _spawn(command, pid_file, log, {**CLEAN_ENVIRONMENT, **(environment or {})})
    end = time.monotonic() + timeout_s
    while _identity(pid) is not None and time.monotonic() < end:
        if _accepts(address, port):
            return
        time.sleep(PAUSE_S)
    what = "does not answer" if alive(pid_file) else "ended"
    stop(pid_file)
    last_lines = "\n".join(log.read_text(errors="replace").splitlines()[-5:]) or "it said nothing"
    raise StartError(f"{Path(command[0]).name} on {address}:{port} {what}: {last_lines}")


def alive(pid_file: Path) -> bool:
    return _pid(pid_file) is not None


def stop(pid_file: Path, timeout_s: float = 10) -> None:
    """Ends the process that wrote the file, if need be with SIGKILL, and removes the file.

    It does not end another process with the same id: start time and boot must match too.
    """
    pid = _pid(pid_file)
    if pid is not None:
        process = os.pidfd_open(pid)
        try:
            for how in (signal.SIGTERM, signal.SIGKILL):
                # Checked again: the id may belong to another process since pidfd_open.
                if _pid(pid_file) is not None:
                    signal.pidfd_send_signal(process, how)
                    select.select([process], [], [], timeout_s)
        finally:
            os.close(process)
        _reap(pid)
    pid_file.unlink(missing_ok=True)


def _spawn(
    command: Sequence[str | Path], pid_file: Path, log: Path, environment: Mapping[str, str]
) -> int:
    return os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", WRITE_PID_FILE, str(pid_file), *map(str, command)],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _pid(pid_file: Path) -> int | None:
    """Returns the id of the process that wrote the file, if it still runs."""
    try:
        written = pid_file.read_text().strip()
    except FileNotFoundError:
        return None
    pid = written.partition(" ")[0]
    return int(pid) if pid.isdecimal() and _identity(int(pid)) == written else None


def _identity(pid: int) -> str | None:
    """Returns what only this process has: id, start time, boot. None if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = stat.rpartition(") ")[2].split()
    if state in {"Z", "X"}:
        _reap(pid)
        return None
    return f"{pid} {fields[18]} {BOOT_ID.read_text().strip()}"


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):  # Another process may have started it.
        os.waitpid(pid, os.WNOHANG)


def _accepts(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True
