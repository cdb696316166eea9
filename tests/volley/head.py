"""A head on this machine: a real sshd and the real volley-head, below a folder."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from head.queue.record import Record
from head.queue.store import Store
from tests.free_port import free_port
from tests.head.queue.queue_head import Head

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
WHY_NOT = (
    "sshd is not installed (openssh-server)"
    if SSHD is None
    else "sshd of a test needs root"
    if os.geteuid() != 0
    else ""
)
CUT = """\
export VOLLEY_ROOT="{root}"
if [ "$(cat {cut}/verb 2>/dev/null)" = "$1" ]; then
  bytes=$(cat {cut}/bytes)
  rm -r {cut}
  "{volley_head}" "$@" | head -c "$bytes"
  sleep 0.5  # What was written is on its way.
  kill -KILL $PPID
  sleep 10
fi
exec "{volley_head}" "$@"
"""
"""volley-head with a connection that breaks once, at the point that a test sets."""


class LocalHead:
    """sshd with its host key and log, and the machine's folders below one folder.

    No queue runs, except in `running`.
    """

    def __init__(self, folder: Path, variables: dict[str, str] | None = None) -> None:
        self.folder, self.root = folder, folder / "root"
        self._head = Head(self.root, variables)
        self.running = self._head.running
        self.experiments = self._head.experiments
        self.record, self.store = self._head.record, Store(self.experiments)
        self.port = free_port()
        self.log = folder / "sshd.log"
        self.key = make_key(folder / "laptop_key")
        self._process: subprocess.Popen[bytes] | None = None
        self._programs()
        self.new_host_key()

    @property
    def login(self) -> str:
        """The stack output `ssh`."""
        options = f"-F /dev/null -p {self.port} -i {self.key} -o IdentitiesOnly=yes"
        return f"ssh {options} {getpass.getuser()}@127.0.0.1"

    def start(self) -> None:
        command = [str(SSHD), "-D", "-E", str(self.log), "-f", str(self.settings())]
        self._process = subprocess.Popen(command, start_new_session=True)
        until(lambda: listens(self.port))

    def settings(self) -> Path:
        """Writes sshd's settings."""
        Path("/run/sshd").mkdir(exist_ok=True)
        settings = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.folder / 'host_key'}",
            f"AuthorizedKeysFile {self.key.with_suffix('.pub')}",
            "PidFile none",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "PermitRootLogin prohibit-password",
            "LogLevel VERBOSE",
            f'SetEnv "PATH={self.folder / "programs"}:{os.environ["PATH"]}"',
        ]
        file = self.folder / "sshd_config"
        file.write_text("\n".join(settings) + "\n")
        return file

    def stop(self) -> None:
        """Kills sshd and all its connections, as switching off the machine does."""
        if self._process is None:
            return
        kill_tree(self._process.pid)
        self._process.wait()
        self._process = None

    def new_host_key(self) -> None:
        for file in self.folder.glob("host_key*"):
            file.unlink()
        make_key(self.folder / "host_key")

    def connections(self) -> int:
        """Returns the number of TCP connections accepted so far."""
        return self.log.read_text().count("Accepted publickey")

    def commands(self) -> int:
        """Returns the number of commands run so far."""
        return self.log.read_text().count("Starting session")

    def experiment(self, name: str, state: str = "TRAINING", **fields: Any) -> Path:
        """Writes an experiment; returns its folder."""
        folder = self.experiments / name
        folder.mkdir()
        Record(name, state, key=f"{name}-key", **fields).write(folder)
        (folder / "output.log").write_text("first line\n")
        return folder

    def knows(self, *nodes: dict[str, Any], ago_s: float = 0) -> None:
        """Writes the nodes that the queue has seen."""
        file = self.experiments / ".cluster.json"
        file.write_text(json.dumps({"time": time.time() - ago_s, "nodes": nodes, "drivers": 0}))

    def change(self, name: str, **changes: Any) -> None:
        """Changes an experiment as the queue does."""
        self.store.change(self.store.get(name), **changes)

    def run_file(self, name: str, path: str, content: bytes) -> Path:
        return self.write(f"var/lib/volley/runs/{self.record(name)['key']}/{path}", content)

    def write(self, path: str, content: bytes) -> Path:
        """Writes a file of the machine; the path is relative to its root."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        return place

    def cut(self, verb: str, after: int = 0) -> None:
        """Breaks the next connection that this verb uses after some bytes of the answer."""
        self.write("cut/bytes", str(after).encode())
        self.write("cut/verb", verb.encode())

    def _programs(self) -> None:
        folder = self.folder / "programs"
        folder.mkdir()
        program(folder / "sudo", 'exec "$@"')
        program(folder / "runuser", 'shift 3; exec "$@"')  # --user ray --
        program(folder / "python3", f'exec {sys.executable} "$@"')
        program(folder / "journalctl", 'echo "journalctl $*"')
        paths = {
            "root": self.root,
            "cut": self.root / "cut",
            "volley_head": self._head.scripts / "volley-head",
        }
        program(folder / "volley-head", CUT.format(**paths))


def make_key(path: Path) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True)
    return path


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def kill_tree(pid: int) -> None:
    """Kills a process, then its descendants, so that sshd cannot report how its commands ended."""
    for one in [pid, *descendants(pid)]:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Returns a process's descendants, parents first."""
    found = subprocess.run(
        ["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    parents = {int(line.split()[0]): int(line.split()[1]) for line in found if line.strip()}
    children = [child for child, parent in parents.items() if parent == pid]
    return [one for child in children for one in [child, *descendants(child)]]


def listens(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it has not come"
        time.sleep(0.05)
