"""Finds what a test run leaves behind on the machine: processes, files, sockets, network."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

MARK = "VOLLEY_TESTS"
"""Environment variable that marks every process of a run."""
END_S = 15.0
"""How long processes may take to end after the last test."""


class Leftovers:
    """Watches a run from its start, in the process that has started it."""

    def __init__(self, network: bool) -> None:
        """Gives every process that starts from now on the mark and a folder for temporary files.

        Args:
            network: Whether to compare the network too, which other programs may also change.
        """
        self._of_network: Callable[[], Iterable[str]] = _network if network else list
        # pytest keeps the files of tests in its usual folder, for inspection.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
        os.environ[MARK] = secrets.token_hex(8)
        # A short path, because sockets are created below it.
        self.folder = Path(tempfile.mkdtemp(prefix="vt-", dir="/tmp"))
        self.folder.chmod(0o1777)
        os.environ["TMPDIR"] = str(self.folder)
        tempfile.tempdir = None
        self._network = set(self._of_network())

    def found(self) -> list[str]:
        """Returns what the run has left, and removes its temporary files."""
        end = time.monotonic() + END_S
        while _processes() and time.monotonic() < end:
            time.sleep(0.2)
        left = [f"process {process}" for process in _processes()]
        if (self.folder / "ray/ray_current_cluster").exists():
            left.append(
                "ray_current_cluster: a plain ray.init() would look for a cluster that is gone"
            )
        left += [
            _named(path)
            for path in sorted([*self.folder.glob("*"), *self.folder.glob("ray/*")])
            if path.name != "ray" and not path.name.startswith("torchinductor_")
        ]
        left += [f"network: {name}" for name in sorted(set(self._of_network()) - self._network)]
        left += listening_sockets()
        shutil.rmtree(self.folder, ignore_errors=True)
        return left


def _named(path: Path) -> str:
    """Returns a file's path, or a folder's with the names of its first entries."""
    inside = sorted(each.name for each in path.iterdir())[:3] if path.is_dir() else []
    return f"file {path} {' '.join(inside)}".strip()


def listening_sockets() -> list[str]:
    """Returns the sockets at which this process still listens."""
    return [
        f"socket {connection.laddr.ip}:{connection.laddr.port} of process {os.getpid()}"
        for connection in psutil.Process().net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]


def _processes() -> list[str]:
    """Returns the processes with the mark of this run."""
    own = [psutil.Process(), *psutil.Process().parents()]
    left = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            marked = process.environ().get(MARK) == os.environ[MARK]
            ended = process.status() == psutil.STATUS_ZOMBIE
            if marked and process not in own and not ended:
                left.append(f"{process.pid} ({' '.join(process.cmdline())[:200]})")
    return left


def _network() -> Iterator[str]:
    """Yields the names of network namespaces, of interfaces and of nftables' tables."""
    for kind, folder in (("namespace", "/run/netns"), ("interface", "/sys/class/net")):
        with suppress(OSError):
            yield from (f"{kind} {name}" for name in os.listdir(folder))
    if os.getuid() == 0 and shutil.which("nft"):
        command = ["nft", "list", "tables"]
        listed = subprocess.run(command, capture_output=True, text=True, check=False)
        yield from (f"nftables {line}" for line in listed.stdout.splitlines())
