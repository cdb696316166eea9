"""The wheel without a clone: volley trains and declares a stack from a user's folder."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.project_files import PROJECT
from payload.parcel import payload_archive
from tests.infra.declared_stack import REQUIRED
from tests.infra.up.engine_stack import Stack as EngineStack
from tests.infra.up.engine_stack import needs_pulumi
from tests.project import ROOT

pytestmark = pytest.mark.slow

FAILING_AZURE = "tests.infra.up.failing_azure"
TINY = {"num_env_runners": 1, "num_envs_per_env_runner": 1, "train_batch_size_per_learner": 256}
CARTPOLE = {
    "run": "PPO",
    "env": "CartPole-v1",
    "config": {**TINY, "min_time_s_per_iteration": 0},
    "stop": {"training_iteration": 1},
}
DESCRIBE = """
import hashlib, json, infra, payload, volley
from infra.boot.cloud_config import LOCK, REQUIREMENTS
from payload.parcel import payload_archive
print(json.dumps({
    "places": [package.__file__ for package in (infra, payload, volley)],
    "lock": hashlib.sha256((REQUIREMENTS / LOCK).read_bytes()).hexdigest(),
    "payload": hashlib.sha256(payload_archive()).hexdigest(),
}))
"""


class Installed:
    """A virtual environment with the wheel and the packages of the current environment."""

    def __init__(self, folder: Path) -> None:
        self.environment = folder / "environment"
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), cwd=ROOT)
        run(sys.executable, "-m", "venv", "--without-pip", str(self.environment))
        (wheel,) = folder.glob("volley_rl-*.whl")
        uv = str(Path(sys.executable).with_name("uv"))
        install = ("pip", "install", "--no-deps", "--offline", "--python", str(self.python))
        run(uv, *install, str(wheel))
        # A .pth file adds the packages without processing this clone's own .pth file.
        (packages,) = self.environment.glob("lib/python*/site-packages")
        others = [path for path in sys.path if path.endswith("site-packages")]
        (packages / "others.pth").write_text("\n".join(others))

    @property
    def python(self) -> Path:
        return self.environment / "bin/python"

    def volley(self, folder: Path, *words: str) -> str:
        return run(str(self.environment / "bin/volley"), *words, cwd=folder)


def run(*command: str, cwd: Path | None = None, **environment: str) -> str:
    """Runs a command without this clone on Python's path; returns its output."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def project(installed: Installed, tmp_path: Path) -> Path:
    """A folder that `volley new` has made."""
    installed.volley(tmp_path, "new", "mine")
    return tmp_path / "mine"


def test_cartpole_trains_in_a_folder_of_ones_own(installed: Installed, project: Path) -> None:
    (project / "cart.yaml").write_text(yaml.dump(CARTPOLE))
    out = installed.volley(project, "train", "cart.yaml")
    volley = installed.environment / "bin/volley"
    (run_folder,) = (project / "results/runs").iterdir()
    assert "FINISHED" in out
    assert f"  {volley} evaluate {run_folder.relative_to(project)} --video best.mp4" in out
    assert f"MLflow           {volley} ui\n" in out
    played = installed.volley(project, "evaluate", "--episodes", "1")
    assert "over 1 episodes" in played
    assert str(run_folder.name) in played


def test_what_travels_to_a_cluster_is_the_clones(installed: Installed, tmp_path: Path) -> None:
    described: dict[str, Any] = json.loads(run(str(installed.python), "-c", DESCRIBE, cwd=tmp_path))
    assert all(str(installed.environment) in place for place in described["places"])
    lock = (ROOT / "requirements/machine.txt.gz").read_bytes()
    assert described["lock"] == hashlib.sha256(lock).hexdigest()
    assert described["payload"] == hashlib.sha256(payload_archive()).hexdigest()


def test_a_new_project_has_the_clones_settings_and_a_program_of_its_own(project: Path) -> None:
    own, clones = (
        yaml.safe_load((folder / "Pulumi.yaml").read_text()) for folder in (project, PROJECT)
    )
    assert own["config"] == clones["config"]
    assert "main" not in own
    assert own["runtime"] == {"name": "python", "options": {"toolchain": "pip"}}
    stack = yaml.safe_load((project / "Pulumi.dev.yaml").read_text())["config"]
    assert (project / stack["volley:experiment"]).exists()


@needs_pulumi
def test_up_and_down_work_in_a_new_project(
    installed: Installed, project: Path, tmp_path: Path
) -> None:
    file = str(tmp_path / "azure.json")
    engine = EngineStack.make(tmp_path / "engine", "other", FAILING_AZURE, AZURE_FILE=file)
    others = {key: value for key, value in engine.environment.items() if key != "PYTHONPATH"}
    stack = EngineStack(project, "dev", others)
    assert stack.pulumi("stack", "init", "dev").returncode == 0
    stack.configure({**REQUIRED, "checkQuota": "false"})
    volley = str(installed.environment / "bin/volley")
    up = stack.run(volley, "up", "--stack", "dev", "--yes", "--skip-preview")
    assert up.returncode == 0, up.stdout + up.stderr
    assert "VirtualMachine" in stack.kinds()
    down = stack.run(volley, "down", "--stack", "dev", "--yes", "--skip-preview")
    assert down.returncode == 0, down.stdout + down.stderr
    assert "VirtualMachine" not in stack.kinds()


def test_a_folder_with_something_in_it_is_left_alone(installed: Installed, project: Path) -> None:
    command = [str(installed.environment / "bin/volley"), "new", str(project)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        f"volley: {project}: is not empty; give a new folder\n",
    )
