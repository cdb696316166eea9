"""A head whose root is a folder, with the real software and boot scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from infra.boot.head_wheel import head_files
from tests.infra.boot.boot_scripts import install_scripts

HOUR = 3600.0
CONTAINER_S = 500
"""The host's uptime when the machine started."""


class InstalledHead:
    """The files of a head that has been up for an hour, and whose root is a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "var/lib/volley"
        self.experiments = self.home / "experiments"
        self.experiments.mkdir(parents=True)
        self.scripts = install_scripts(root)
        self.software = self.scripts / "software"
        for name, content in head_files().items():
            path = self.software / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        (root / "proc/sys/kernel/random").mkdir(parents=True)
        (root / "proc/1").mkdir()
        # Of cluster-sleep.service and disk-space.service.
        for name in ("volley", "volley-requests"):
            (root / "run" / name).mkdir(parents=True)
        # Of install_head.sh.
        self.state = root / "var/lib/volley-identity"
        self.settings = root / "etc/volley/cluster-settings.json"
        for folder in (self.state, self.settings.parent, root / "var/lib/volley-mlflow"):
            folder.mkdir(parents=True, exist_ok=True)
        self.boot("first")
        self.set_up_for(HOUR)

    @property
    def environment(self) -> dict[str, str]:
        software = {"PYTHONPATH": str(self.software), "PYTHONSAFEPATH": "1"}
        return {"VOLLEY_ROOT": str(self.root), **software}

    def boot(self, name: str) -> None:
        (self.root / "proc/sys/kernel/random/boot_id").write_text(f"{name}\n")

    def set_up_for(self, seconds: float) -> None:
        (self.root / "proc/uptime").write_text(f"{seconds + CONTAINER_S} 0\n")
        ticks = CONTAINER_S * os.sysconf("SC_CLK_TCK")
        (self.root / "proc/1/stat").write_text(f"1 (systemd) S{' 0' * 18} {ticks} 0\n")

    def replace_module(self, name: str, source: str) -> None:
        """Replaces a module of the head's software, for example "results.py"."""
        (self.software / "head" / name).write_text(source)

    def volley_head(
        self, *arguments: str, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "head.command", *arguments],
            env={**os.environ, **self.environment},
            input=stdin,
            capture_output=True,
            timeout=120,
            check=False,
        )

    def ask(self, *arguments: str, stdin: bytes = b"") -> dict[str, Any]:
        """Returns the answer of volley-head."""
        done = self.volley_head(*arguments, stdin=stdin)
        assert done.returncode in (0, 2), done.stderr.decode()
        answer: dict[str, Any] = json.loads(done.stdout)
        assert ("error" in answer) == (done.returncode == 2), answer
        return answer
