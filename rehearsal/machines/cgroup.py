"""A machine's cgroups: all processes in them can be found and killed, even orphans.

They are below this process's own cgroup in every hierarchy (v1, v2 or both at once), which needs
no rights on the host.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from rehearsal.host_paths import PREFIX

MOUNT = Path("/sys/fs/cgroup")


class Cgroup:
    """The cgroups of one machine."""

    def __init__(self, name: str) -> None:
        self.paths = [top / PREFIX / name for top in _own()]

    def make(self) -> None:
        for path in self.paths:
            path.mkdir(parents=True, exist_ok=True)
            if "cpuset" in path.relative_to(MOUNT).parts[0].split(","):
                _inherit_cpus(path)

    def enter_command(self) -> str:
        """Returns shell code that moves its process, and thereby its children, into the cgroups."""
        return "".join(f"echo 0 > '{path}/cgroup.procs' || :\n" for path in self.paths)

    def processes(self) -> set[int]:
        pids: set[int] = set()
        for path in self.paths:
            for folder, _, _ in os.walk(path):
                with suppress(OSError):
                    pids |= set(map(int, Path(folder, "cgroup.procs").read_text().split()))
        return pids - {0, os.getpid()}

    def kill(self, timeout_s: float = 10) -> None:
        """Kills all processes in them: a killed systemd-nspawn leaves its container running."""
        end = time.monotonic() + timeout_s
        while (alive := self.processes()) and time.monotonic() < end:
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def remove(self) -> None:
        for path in self.paths:
            _remove_tree(path)


def all_names() -> set[str]:
    """Returns the names of all machines that have a cgroup."""
    tops = [top / PREFIX for top in _own()]
    return {path.name for top in tops if top.is_dir() for path in top.iterdir() if path.is_dir()}


def remove_all() -> None:
    """Removes the empty cgroups of all machines, and their parents."""
    for top in _own():
        _remove_tree(top / PREFIX)


def _own() -> Iterator[Path]:
    """Yields this process's cgroup in each mounted hierarchy, except memory.

    Some hosts give each process its own memory cgroup, so another process of the rehearsal would
    not find the cgroups that this one makes there.
    """
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        name = controllers.removeprefix("name=")
        if name == "memory":
            continue
        mount = MOUNT / name if name else MOUNT
        if not name and not (MOUNT / "cgroup.procs").exists():
            mount = MOUNT / "unified"
        if (mount / "cgroup.procs").exists():
            yield mount / path.strip("/")


def _inherit_cpus(path: Path) -> None:
    """Fills a new cpuset of v1: no process may enter an empty one."""
    for folder in (path.parent, path):
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (folder / file).exists() and not (folder / file).read_text().strip():
                (folder / file).write_text((folder.parent / file).read_text())


def _remove_tree(path: Path) -> None:
    for folder, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):
            os.rmdir(folder)
