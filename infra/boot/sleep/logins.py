"""Who is logged in over SSH.

A process whose parent is sshd's is a login. `ssh -N`, as volley's shared connection and its tunnel,
has processes of sshd only; `volley status` may ask every few seconds and does not count. What was
left behind in tmux or by nohup has another parent: it does not keep the head awake.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
SSHD = ("sshd", "sshd-session", "sshd-auth")
STATUS = re.compile(r"(\S*sh -c )?(sudo )?(\S*/)?volley-head status( --name [a-z0-9-]+)?")


@dataclass(frozen=True)
class Process:
    pid: int
    name: str
    parent: int
    command: str


def logins() -> list[str]:
    """Returns the commands of those who are logged in."""
    found = {one.pid: one for one in _processes()}
    servers = {one.pid for one in found.values() if one.name in SSHD}
    return [
        one.command or one.name
        for one in found.values()
        if one.parent in servers and one.pid not in servers and not STATUS.fullmatch(one.command)
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
