"""A machine's users, in namespaces of mounts and of the network: this host keeps its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from infra.boot.cloud_config import FILES

CONF = FILES / "common/etc/sysusers.d/volley.conf"
TOOLS = ("nft", "nsenter", "setpriv", "systemd-sysusers", "unshare")
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]
RIGHTS = "+dac_read_search,+net_bind_service"
"""Of identity.service."""
SYSTEM_PYTHON = "/usr/bin/python3"
"""The users may not enter root's folders, where the tests' Python may be."""


def why_not() -> str:
    """Returns what is missing here for such users."""
    return "needs root" if os.getuid() else f"needs {', '.join(MISSING)}" if MISSING else ""


class MachineUsers:
    """Runs commands as a user, in a network of one machine whose metadata service is its own."""

    def __init__(self, folder: Path, namespaces: subprocess.Popen[bytes]) -> None:
        self.folder = folder
        """Everybody may enter it."""
        self._enter = ["nsenter", f"--target={namespaces.pid}", "--mount", "--net"]

    def command(
        self, user: str, *words: str | Path, group: str = "", rights: str = ""
    ) -> list[str]:
        """Returns a command of a user; identity.service's group is ray's, and it has RIGHTS."""
        who = [f"--reuid={user}", f"--regid={group or user}", "--clear-groups"]
        if rights:
            who += [f"--inh-caps={rights}", f"--ambient-caps={rights}"]
        return [*self._enter, "setpriv", *who, *map(str, words)]

    def run(
        self, user: str, *words: str | Path, group: str = "", rights: str = ""
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(user, *words, group=group, rights=rights),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def do(self, *words: str | Path) -> None:
        """Runs a command as root."""
        done = self.run("root", *words)
        assert done.returncode == 0, done.stderr


@contextmanager
def machine_users() -> Iterator[MachineUsers]:
    """Yields the users that volley.conf declares."""
    with TemporaryDirectory(dir="/tmp", prefix="users-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        root = folder / "root"
        (root / "etc").mkdir(parents=True)
        subprocess.run(["systemd-sysusers", f"--root={root}", CONF], check=True)
        made = ["unshare", "--net", "--mount", "sh", "-c", "echo; exec sleep infinity"]
        with subprocess.Popen(made, stdout=subprocess.PIPE) as namespaces:
            try:
                assert namespaces.stdout is not None
                namespaces.stdout.readline()
                users = MachineUsers(folder, namespaces)
                for file in ("passwd", "group"):
                    bind = ["mount", "--bind", str(root / "etc" / file), f"/etc/{file}"]
                    subprocess.run([*users._enter, *bind], check=True)
                users.do("ip", "link", "set", "lo", "up")
                yield users
            finally:
                namespaces.kill()
