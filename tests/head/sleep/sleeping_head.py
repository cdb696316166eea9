"""A head that may sleep: its software and processes are real, its paths are below a folder.

Each run is a process, as the timer starts it. The rehearsal provides Azure and the identity's
tokens over HTTP; stubs of systemctl and of a save record their calls.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.head.installed_head import InstalledHead
from tests.infra.boot.boot_scripts import Machine
from tests.python_310 import PYTHON
from tests.rehearsal.azure.resources.scale_set_cloud import HEAD, SCALE_SET, Cloud

HOUR = 3600.0
PRICES = {
    "head": 2.0,
    "worker": 0.5,
    "always": 0.25,
    "stored_gb": 0.01,
    "estimate": "eastus, 2026-01-31",
}
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
    "prices": PRICES,
}
SYSTEMCTL = """\
[[ ! -e fails || "$*" != $(cat fails) ]] || { echo "Job failed." >&2; exit 1; }
[[ ! -e kills || "$*" != $(cat kills) ]] || { rm kills; kill -9 $PPID; }
[[ ! -e submits || "$*" != stop* ]] || mv submits var/lib/volley/experiments/late
"""
SAVE = """\
import sys
from pathlib import Path

root = Path("{root}")
with (root / "calls").open("a") as calls:
    print(*sys.argv[1:], file=calls)
sys.exit((root / "unsaved").exists())
"""
"""Replaces head/identity, which tests/head/identity tests."""


class SleepingHead(InstalledHead):
    """A head that has been up for an hour and is idle.

    Args:
        identity: The address from which the machine's identity gets its tokens.
    """

    def __init__(self, root: Path, cloud: Cloud, identity: str) -> None:
        super().__init__(root)
        self.cloud, self.identity = cloud, identity
        self.replace_module("identity/__main__.py", SAVE.format(root=self.root))
        self.shorten_waits(POLL_S=0.2)
        self.machine = Machine(self.root)
        self.machine.command("systemctl", SYSTEMCTL)
        self.set()
        self.queue_sees()

    def set(self, **settings: Any) -> None:
        """Writes the cluster's settings, with these changes."""
        endpoint = {"endpoint": self.cloud.url}
        self.write("cluster-settings.json", {**SETTINGS, **endpoint, **settings})

    def shorten_waits(self, **constants: float) -> None:
        path = self.software / "head/sleep/deallocation.py"
        for name, value in constants.items():
            text = re.sub(rf"^{name} = .*", f"{name} = {value}", path.read_text(), flags=re.M)
            path.write_text(text)

    def set_clock(self, ahead_s: float) -> None:
        """Sets the head's clock; the time that it has been up is the same."""
        source = f"import time\nright = time.time\ntime.time = lambda: right() + {ahead_s}\n"
        self.replace_module("__init__.py", source)

    def queue_sees(self, drivers: int = 0, workers: int = 0, age_s: float = 0) -> None:
        roles = ["head", *["worker"] * workers]
        nodes = [
            {"name": role, "address": "", "role": role, "cpus": 2, "gpus": 0} for role in roles
        ]
        seen = {"time": time.time() - age_s, "nodes": nodes, "drivers": drivers}
        self.write("experiments/.cluster.json", seen)

    def experiment(self, name: str, state: str, folder: Path | None = None) -> None:
        folder = folder or self.home / "experiments" / name
        folder.mkdir()
        record = {"name": name, "state": state, "key": f"{name}-key"}
        (folder / "state.json").write_text(json.dumps(record))

    def sees_process(self, pid: int) -> None:
        """Makes a process of this machine visible to the head."""
        (self.root / f"proc/{pid}").symlink_to(f"/proc/{pid}")

    @contextmanager
    def jupyter(self, kernels: int) -> Iterator[None]:
        """Lets JupyterLab run, with processes in place of its server and its kernels."""
        script = "for i in $(seq $0); do sleep 600 & echo $!; done; wait"
        command = ["bash", "-c", script, str(kernels)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as server:
            assert server.stdout is not None
            for pid in [server.pid, *(int(server.stdout.readline()) for _ in range(kernels))]:
                self.sees_process(pid)
            file = self.root / f"run/jupyter/jpserver-{server.pid}.json"
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps({"pid": server.pid, "port": 8888, "token": "secret"}))
            try:
                yield
            finally:
                os.killpg(server.pid, signal.SIGKILL)
        shutil.rmtree(file.parent)

    def run(self, expected: int = 0, module: str = "head.sleep") -> str:
        """Runs the sleep check once, with the system's Python; returns its output."""
        done = subprocess.run(
            [str(PYTHON or sys.executable), "-S", "-m", module],
            cwd="/",
            env={
                "PATH": f"{self.root}/bin:/usr/bin:/bin",
                **self.environment,
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
        """Runs the sleep check with the head idle for `minutes`."""
        self.run()
        self.change("sleep.json", idle_since=time.time() - 60 * minutes)
        return self.run()

    @property
    def sleep(self) -> dict[str, Any]:
        """The sleep state that `volley-head status` reports."""
        found: dict[str, Any] = self.ask("status")["sleep"]
        return found

    @property
    def calls(self) -> list[str]:
        return [call.replace(str(self.root), "") for call in self.machine.called()]

    @property
    def is_deallocated(self) -> bool:
        view = self.cloud.azure.resources()[HEAD].instance_view
        return bool(view.get("powerState") == "PowerState/deallocated")

    def read(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._file(name).read_text())
        return found

    def write(self, name: str, values: dict[str, Any]) -> None:
        self._file(name).write_text(json.dumps(values))

    def _file(self, name: str) -> Path:
        folders = {
            "sleep.json": self.root / "run/volley",
            "stored.json": self.state,
            self.settings.name: self.settings.parent,
        }
        return folders.get(name, self.home) / name

    def change(self, name: str, **values: Any) -> None:
        self.write(name, {**self.read(name), **values})

    def fault(self, **values: int) -> None:
        with self.cloud.faults.changed() as faults:
            for name, value in values.items():
                setattr(faults, name, value)
