"""Whether anybody needs the cluster: experiments, Ray drivers, notebooks, and people logged in.

A process whose parent is sshd's is a login. `ssh -N` (volley's shared connection and its tunnel)
has processes of sshd only; `volley status`, which may ask every few seconds, and a TensorBoard that
somebody left open do not count. A program left in tmux or under nohup has another parent: it does
not keep the head awake.

A child of JupyterLab's server is a kernel. The server ends a kernel that was idle for two hours:
units/jupyter.service. An open page without a kernel does not keep the head awake.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ..disk import NO_SPACE, free_bytes
from ..jupyter_server import jupyter_server
from ..paths import PROC
from ..queue.cluster_state import read_cluster_state
from ..queue.store import Store

STALE_S = 120.0
"""The queue's view of Ray counts for this long."""
SSHD = ("sshd", "sshd-session", "sshd-auth")
LOOKS = re.compile(
    r"(\S*sh -c )?(sudo )?(\S*/)?volley-head (status( --name [a-z0-9-]+)?|tensorboard --port \d+)"
)


@dataclass(frozen=True)
class Need:
    """Who needs the cluster."""

    who: str
    """Empty: nobody."""
    certain: bool = True
    """An unknown state counts as a need, too."""


def need() -> Need:
    try:
        who = unfinished() or _logged_in() or in_jupyter() or _drivers()
    except Exception as error:
        return Need(f"unknown: {error}", certain=False)
    return Need(who)


def unfinished() -> str:
    """Returns the names of the experiments that are not over."""
    return ", ".join(record.name for record in Store().records() if not record.over)


def in_jupyter() -> str:
    """Returns how many kernels JupyterLab has; empty without any."""
    running = kernels()
    return f"{running} JupyterLab kernel{'s' * (running > 1)}" if running else ""


def kernels() -> int | None:
    """Returns the number of JupyterLab's kernels, busy and idle; None if it does not run."""
    server = jupyter_server()
    if not server:
        return None
    return sum(process.parent == server.get("pid") for process in _processes())


def _drivers() -> str:
    cluster = read_cluster_state()
    # A clock that was set back would make an old view look new.
    if abs(time.time() - cluster.time) > STALE_S:
        if free_bytes() < NO_SPACE:
            return ""  # The queue cannot write what it sees.
        raise LookupError(f"the queue has not seen Ray for {STALE_S:.0f} s")
    return f"{cluster.drivers} Ray drivers" if cluster.drivers else ""


def _logged_in() -> str:
    commands = logins()
    return f"logged in: {commands[0][:100]}" if commands else ""


@dataclass(frozen=True)
class Process:
    pid: int
    name: str
    parent: int
    command: str


def logins() -> list[str]:
    processes = list(_processes())
    servers = {process.pid for process in processes if process.name in SSHD}
    return [
        process.command or process.name
        for process in processes
        if process.parent in servers
        and process.pid not in servers
        and not LOOKS.fullmatch(process.command)
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
