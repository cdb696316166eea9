"""A head that may sleep: its scripts and processes are real, its paths are below a folder.

Each run is a process as the timer starts it. Azure and the identity's tokens are the rehearsal's,
over HTTP; systemctl and runuser write down how they were called.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.boot.cluster_package import cluster_package
from infra.stack.autoscaling import ENDPOINT
from tests.infra.boot.boot_scripts import Machine, below, install_scripts
from tests.rehearsal.azure.resources.scale_set_cloud import HEAD, SCALE_SET, Cloud

HOUR = 3600.0
CONTAINER_S = 500
"""For how long the host was up when the machine was started."""
DOLLARS = {"head": 2.0, "worker": 0.5, "always": 0.25, "estimate": "eastus, 2026-01-31"}
SETTINGS: dict[str, Any] = {
    "scaling": "demand",
    "min_workers": 0,
    "max_workers": 4,
    "sleep_after_minutes": 30,
    "max_hours": 0,
    "budget": 0,
    "scale_set": SCALE_SET,
    "head_vm": HEAD,
    "head": {"cpus": 4, "gpus": 0},
    "worker": {"cpus": 2, "gpus": 0},
    "dollars": DOLLARS,
}
SYSTEMCTL = """\
[[ ! -e fails || "$*" != $(cat fails) ]] || { echo "Job failed." >&2; exit 1; }
[[ ! -e kills || "$*" != $(cat kills) ]] || { rm kills; kill -9 $PPID; }
[[ ! -e submits || "$*" != stop* ]] || mv submits var/lib/volley/experiments/late
"""
RUNUSER = 'shift 3; exec "$@"'
SAVE = """\
import sys
from pathlib import Path

print("saved")
sys.exit(Path("{root}/unsaved").exists())
"""
"""Instead of sync_results.py, which tests/infra/sync_results holds."""


@dataclass
class SleepingHead:
    """It has been up for an hour, and nobody needs it."""

    root: Path
    cloud: Cloud
    identity: str
    """Where the machine's identity gets its tokens."""

    def __post_init__(self) -> None:
        self.home = self.root / "var/lib/volley"
        (self.home / "experiments").mkdir(parents=True)
        (self.root / "proc/sys/kernel/random").mkdir(parents=True)
        (self.root / "proc/1").mkdir()
        self.scripts = install_scripts(self.root)
        (self.scripts / "sync_results.py").write_text(SAVE.format(root=self.root))
        for name, content in cluster_package().items():
            path = self.scripts / "scaling" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = below(self.root, content.decode())
            # The stand-in has another address, and takes Azure's own audience.
            text = text.replace(ENDPOINT, self.cloud.url)
            path.write_text(text.replace('f"{ENDPOINT}/.default"', f'"{ENDPOINT}/.default"'))
        for path in self.scripts.rglob("*.py"):
            path.write_text(path.read_text().replace('"/proc', f'"{self.root}/proc'))
        self.in_azure_py(POLL_S=0.2)
        self.machine = Machine(self.root)
        self.machine.command("systemctl", SYSTEMCTL)
        self.machine.command("runuser", RUNUSER)
        self.boot("first")
        self.set_up_for(HOUR)
        self.set()
        self.queue_sees()

    def set(self, **settings: Any) -> None:
        """Brings the settings."""
        self.write("cluster-settings.json", {**SETTINGS, **settings})

    def in_azure_py(self, **constants: float) -> None:
        """Makes its waits shorter."""
        path = self.scripts / "scaling/volley_cluster/sleep/azure.py"
        for name, value in constants.items():
            text = re.sub(rf"^{name} = .*", f"{name} = {value}", path.read_text(), flags=re.M)
            path.write_text(text)

    def boot(self, name: str) -> None:
        (self.root / "proc/sys/kernel/random/boot_id").write_text(f"{name}\n")

    def set_up_for(self, seconds: float) -> None:
        (self.root / "proc/uptime").write_text(f"{seconds + CONTAINER_S} 0\n")
        ticks = CONTAINER_S * os.sysconf("SC_CLK_TCK")
        (self.root / "proc/1/stat").write_text(f"1 (systemd) S{' 0' * 18} {ticks} 0\n")

    def queue_sees(self, drivers: int = 0, workers: int = 0, age_s: float = 0) -> None:
        roles = ["head", *["worker"] * workers]
        nodes = [{"role": role, "cpus": 2, "gpus": 0} for role in roles]
        seen = {"time": time.time() - age_s, "nodes": nodes, "drivers": drivers}
        self.write("experiments/.cluster.json", seen)

    def experiment(self, name: str, state: str, folder: Path | None = None) -> None:
        folder = folder or self.home / "experiments" / name
        folder.mkdir()
        (folder / "state.json").write_text(json.dumps({"name": name, "state": state}))

    def sees_process(self, pid: int) -> None:
        """Shows the head a process of this machine."""
        (self.root / f"proc/{pid}").symlink_to(f"/proc/{pid}")

    def run(self, expected: int = 0) -> str:
        """Runs once; returns what it says."""
        done = subprocess.run(
            [sys.executable, "-m", "volley_cluster.sleep"],
            env={
                "PATH": f"{self.root}/bin:/usr/bin:/bin",
                "PYTHONPATH": f"{self.scripts}/scaling:{self.scripts}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "AZURE_CLIENT_ID": "head-client",
                "AZURE_POD_IDENTITY_AUTHORITY_HOST": self.identity,
                "HOME": str(self.root),
                "MLFLOW_TRACKING_URI": os.environ.get("MLFLOW_TRACKING_URI", ""),
            },
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == expected, done.stderr
        return done.stdout

    def run_when_idle_for(self, minutes: float) -> str:
        """Runs after nobody has needed the head for so long."""
        self.run()
        self.change("sleep.json", idle_since=time.time() - 60 * minutes)
        return self.run()

    def ask(self, *arguments: str, stdin: bytes = b"") -> dict[str, Any]:
        """Returns the answer of volley-head."""
        command = [sys.executable, str(self.scripts / "volley_head.py"), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
        assert done.returncode in (0, 2), done.stderr.decode()
        answer: dict[str, Any] = json.loads(done.stdout)
        assert ("error" in answer) == (done.returncode == 2), answer
        return answer

    @property
    def sleep(self) -> dict[str, Any]:
        """What `volley-head status` says of it."""
        found: dict[str, Any] = self.ask("status")["sleep"]
        return found

    @property
    def calls(self) -> list[str]:
        return [one.replace(str(self.root), "") for one in self.machine.called()]

    @property
    def is_deallocated(self) -> bool:
        view = self.cloud.azure.resources()[HEAD].instance_view
        return bool(view.get("powerState") == "PowerState/deallocated")

    def read(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / name).read_text())
        return found

    def write(self, name: str, values: dict[str, Any]) -> None:
        (self.home / name).write_text(json.dumps(values))

    def change(self, name: str, **values: Any) -> None:
        self.write(name, {**self.read(name), **values})

    def fault(self, **values: int) -> None:
        with self.cloud.faults.changed() as faults:
            for name, value in values.items():
                setattr(faults, name, value)
