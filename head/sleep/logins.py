"""Logins over SSH.

A process whose parent is sshd's is a login. `ssh -N` (volley's shared connection and its tunnel)
has processes of sshd only, and `volley status`, which may ask every few seconds, does not count. A
program left in tmux or under nohup has another parent: it does not keep the head awake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ..paths import PROC

SSHD = ("sshd", "sshd-session", "sshd-auth")
STATUS = re.compile(r"(\S*sh -c )?(sudo )?(\S*/)?volley-head status( --name [a-z0-9-]+)?")


@dataclass(frozen=True)
class Process:
    pid: int
    name: str
    parent: int
    command: str


def logins() -> list[str]:
    """Returns the command of each login."""
    processes = list(_processes())
    servers = {process.pid for process in processes if process.name in SSHD}
    return [
        process.command or process.name
        for process in processes
        if process.parent in servers
        and process.pid not in servers
        and not STATUS.fullmatch(process.command)
    ]


def _processes() -> Iterator[Process]:
    for folder in PROC.glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text(errors="replace")
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue  # It has ended.
        # pid (name) state parent ...: the name may hold any character.
        start, _, rest = stat.rpartition(")")
        state, parent, *_ = rest.split()
        if state != "Z":
            name = start.partition("(")[2]
            yield Process(int(folder.name), name, int(parent), " ".join(words).strip())
