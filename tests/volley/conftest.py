"""A laptop with `volley`, a stack, and a head that answers over a real SSH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.project import ROOT
from tests.rehearsal.azure.resources.scale_set_cloud import HEAD
from tests.volley.far_head import FarHead
from tests.volley.head import WHY_NOT, LocalHead, program

PULUMI = """\
cd "$(dirname "$0")/.."
case "$2 $*" in
  ls*) ;;
  *"--stack dve"*) echo "error: no stack named 'dve' found" >&2; exit 255;;
esac
echo "$*" >> asked
case "$2" in
  output) cat outputs.json;;
  export) cat state.json;;
  ls) echo '[{"name": "dev"}]';;
esac
"""


class Laptop:
    """A laptop that runs `volley`; its stub of pulumi prints the test's data."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home = folder, home
        self.programs = folder / "programs"
        self.programs.mkdir(parents=True)
        self.asked = folder / "asked"
        self.asked.touch()
        program(self.programs / "pulumi", PULUMI)
        program(self.programs / "az", "echo \"Please run 'az login'\" >&2; exit 1")
        (folder / "Pulumi.yaml").touch()
        self.state({"deployment": {}})

    def outputs(self, **values: Any) -> None:
        (self.folder / "outputs.json").write_text(json.dumps(values))

    def state(self, state: dict[str, Any]) -> None:
        (self.folder / "state.json").write_text(json.dumps(state))

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if k not in {"DISPLAY", "PULUMI_STACK"}}
        own = {"VOLLEY_HOME": str(self.home), "PULUMI_HOME": str(self.folder / "pulumi")}
        path = f"{self.programs}:{os.environ['PATH']}"
        return {**kept, **own, "PATH": path, "PYTHONPATH": str(ROOT)}

    def start(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [sys.executable, "-m", "volley", *words],
            cwd=self.folder,
            env=self.environment,
            text=True,
            **{"stdin": subprocess.DEVNULL, **pipes, **options},
        )

    def volley(self, *words: str, code: int = 0, text: str | None = None) -> str:
        """Returns the output; for an error, its one line without "volley: "."""
        stdin = subprocess.DEVNULL if text is None else subprocess.PIPE
        with self.start(*words, stdin=stdin) as process:
            out, err = process.communicate(text, timeout=100)
        assert process.returncode == code, out + err
        if code == 0:
            return out
        (line,) = err.strip().splitlines()
        return line.removeprefix("volley: ")


@pytest.fixture(autouse=True)
def volley_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes messages name the command `volley`, as in an activated environment."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder with a short path: a socket's path has at most 104 bytes on macOS."""
    with tempfile.TemporaryDirectory(prefix="v", dir="/tmp") as folder:
        yield Path(folder) / "h"


@pytest.fixture
def other_laptop(tmp_path: Path, head: LocalHead) -> Iterator[Laptop]:
    with tempfile.TemporaryDirectory(prefix="v", dir="/tmp") as folder:
        found = Laptop(tmp_path / "other", Path(folder))
        found.outputs(**outputs_of(head))
        yield found


@pytest.fixture
def head(tmp_path: Path) -> Iterator[LocalHead]:
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    found = LocalHead(tmp_path / "head")
    found.start()
    yield found
    found.stop()


@pytest.fixture
def far_head(tmp_path: Path) -> Iterator[FarHead]:
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    if missing := [name for name in ("ip", "unshare", "nsenter") if not shutil.which(name)]:
        pytest.skip(f"a network namespace needs {missing}")
    found = FarHead(tmp_path / "far")
    found.start()
    yield found
    found.stop()
    found.pages.kill()
    found.pages.wait()


@pytest.fixture
def laptop(tmp_path: Path, home: Path) -> Laptop:
    """A laptop whose stack has no cluster yet."""
    found = Laptop(tmp_path / "laptop", home)
    found.outputs()
    return found


@pytest.fixture
def connected(laptop: Laptop, head: LocalHead) -> Laptop:
    """A laptop whose stack has a head."""
    laptop.outputs(**outputs_of(head))
    return laptop


def outputs_of(head: LocalHead, vm_id: str = "vm-1", **others: Any) -> dict[str, Any]:
    return {
        "ssh": head.login,
        "headVmId": vm_id,
        "headHostKey": " ".join((head.folder / "host_key.pub").read_text().split()[:2]),
        "headId": HEAD,
        "headName": "volley-dev-head",
        "resourceGroup": "volley-dev",
        "pricePerHourUsd": 0.73,
        "pricePerHourAsleepUsd": 0.05,
        "pricesFrom": "estimated, eastus, 2026-06",
        **others,
    }


@pytest.fixture
def experiment(laptop: Laptop) -> Path:
    path = laptop.folder / "cart.yaml"
    shutil.copy(ROOT / "experiments/pong.yaml", path)
    return path
