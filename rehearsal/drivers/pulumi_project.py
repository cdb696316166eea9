"""A copy of the project with a stack of its own, for the pulumi CLI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import yaml

from rehearsal.host_shell import CommandError
from rehearsal.paths import ROOT

FOLDERS = ("head", "infra", "payload", "experiments", "requirements")
FILES = ("pyproject.toml", "README.md", "Pulumi.dev.yaml")


@dataclass(frozen=True)
class PulumiProject:
    """The copy, and the environment in which pulumi knows only this stack and our provider."""

    folder: Path
    stack: str
    environment: dict[str, str]

    @classmethod
    def make(cls, folder: Path, stack: str, provider: str, **environment: str) -> Self:
        """Copies the project into `folder` and makes the stack.

        Args:
            provider: The module that runs as azure-native's provider.
            environment: Variables for the provider.

        Raises:
            CommandError: pulumi could not make the stack.
        """
        project, home, state = (folder / name for name in ("project", "home", "state"))
        _copy_to(project)
        _install(provider, home)
        state.mkdir()
        settings = {
            "PULUMI_HOME": str(home),
            "PULUMI_BACKEND_URL": f"file://{state}",
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PYTHONPATH": str(project),
        }
        made = cls(project, stack, {**os.environ, **settings, **environment})
        done = made.pulumi("stack", "init", stack)
        if done.returncode != 0:
            raise CommandError(f"pulumi stack init: {done.stderr}")
        return made

    def pulumi(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run(
            "pulumi", "--non-interactive", "--color", "never", *arguments, **environment
        )

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def configure(self, values: Mapping[str, Any]) -> None:
        """Sets keys of the project; lists and mappings as they are."""
        file = self.folder / f"Pulumi.{self.stack}.yaml"
        settings = yaml.safe_load(file.read_text())
        config = settings.setdefault("config", {})
        config |= {f"volley:{key}": value for key, value in values.items()}
        file.write_text(yaml.dump(settings))


def _copy_to(project: Path) -> None:
    for name in FOLDERS:
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, project / name)
    # This Python runs the program.
    text = (ROOT / "Pulumi.yaml").read_text()
    (project / "Pulumi.yaml").write_text(
        text.replace("virtualenv: .venv", f"virtualenv: {sys.prefix}")
    )


def _install(provider: str, home: Path) -> None:
    version = f"v{metadata.version('pulumi-azure-native')}"
    plugin = home / "plugins" / f"resource-azure-native-{version}"
    plugin.mkdir(parents=True)
    executable = plugin / "pulumi-resource-azure-native"
    executable.write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m {provider} "$@"\n'
    )
    executable.chmod(0o755)
