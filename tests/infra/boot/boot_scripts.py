"""Runs the machines' scripts here: imports the Python ones, relocates the shell ones' paths."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import head.machine_token
from infra.boot.cloud_config import FILES

SCRIPTS = "usr/local/lib/volley"
MACHINE_FOLDERS = (
    "etc/ssh",
    "etc/volley",
    "etc/systemd",
    "opt/volley",
    "var/lib/volley",
    "var/log",
    "run",
    "tmp/ray",
    "proc/driver",
    "sys/fs/cgroup",
    SCRIPTS,
)


def load(name: str) -> ModuleType:
    """Imports a Python boot script."""
    sys.modules.setdefault("machine_token", head.machine_token)
    (path,) = FILES.glob(f"*/{SCRIPTS}/{name}.py")
    spec = importlib.util.spec_from_file_location(f"machine_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def install_scripts(root: Path) -> Path:
    """Writes the head's scripts with a machine's paths below a folder; returns their folder."""
    scripts = root / SCRIPTS
    scripts.mkdir(parents=True)
    for script in FILES.glob(f"*/{SCRIPTS}/*"):
        if script.is_file():
            path = scripts / script.name
            path.write_text(below(root, script.read_text()))
            path.chmod(0o644 if script.suffix else 0o755)
    token = Path(head.machine_token.__file__)
    (scripts / token.name).write_text(token.read_text())
    python = root / "opt/volley/venv/bin/python"
    python.parent.mkdir(parents=True)
    # A symlink to Python would not find the environment's packages.
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return scripts


def below(root: Path, text: str) -> str:
    """Returns a script's text with a machine's paths below a folder."""
    folders = "|".join(MACHINE_FOLDERS)
    return re.sub(rf"(?<![\w/])/({folders})\b", rf"{root}/\1", text)


class Machine:
    """A folder that a shell script uses as a machine's root.

    Small scripts, first on the PATH, replace commands that this host lacks or must not run.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls = root / "calls"
        self.calls.touch()
        for folder in ("bin", "run"):
            (root / folder).mkdir(exist_ok=True)

    def command(self, name: str, text: str) -> None:
        """Makes a bash command that records its calls."""
        path = self.root / "bin" / name
        path.write_text(f'#!/bin/bash\necho "{name} $*" >> {self.calls}\ncd {self.root}\n{text}\n')
        path.chmod(0o755)

    def write(self, path: str, text: str) -> Path:
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def run(
        self, script: str, variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a script with the machine's paths moved below the root."""
        # Bash reads a script while it runs: another start must not write to the same file.
        path = self.write(f"script-{uuid.uuid4().hex}.sh", below(self.root, script))
        return subprocess.run(
            ["bash", str(path)],
            env={"PATH": f"{self.root}/bin:/usr/bin:/bin", **(variables or {})},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def called(self) -> list[str]:
        return self.calls.read_text().splitlines()
