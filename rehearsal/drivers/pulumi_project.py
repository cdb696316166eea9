"""Pulumi's real engine on a copy of the project, with a stack of its own in a backend of files."""

from __future__ import annotations

import json
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

from tests.project import ROOT

FOLDERS = ("infra", "payload", "experiments", "requirements")
FILES = ("pyproject.toml", "README.md", "Pulumi.dev.yaml")


@dataclass(frozen=True)
class PulumiProject:
    """A copy of the project, its engine's home and one stack."""

    folder: Path
    stack: str
    environment: dict[str, str]

    @classmethod
    def make(cls, folder: Path, stack: str, provider: str, **environment: str) -> Self:
        """Copies the project below `folder` and makes the stack.

        Args:
            provider: The module that stands for azure-native, "rehearsal.azure.provider".
            environment: What it wants to know.
        """
        project, home, state = (folder / name for name in ("project", "home", "state"))
        _copy(project)
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
        assert done.returncode == 0, done.stderr
        return made

    def pulumi(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["pulumi", "--non-interactive", "--color", "never", *arguments],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def up(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.pulumi("up", "--yes", "--skip-preview", *arguments, **environment)

    def configure(self, values: Mapping[str, Any]) -> None:
        """Sets keys of the project; lists and mappings as they are."""
        file = self.folder / f"Pulumi.{self.stack}.yaml"
        settings = yaml.safe_load(file.read_text())
        config = settings.setdefault("config", {})
        config |= {f"volley:{key}": value for key, value in values.items()}
        file.write_text(yaml.dump(settings))

    def edit(self, path: str, old: str, new: str) -> None:
        """Replaces a text that is in a file of the project."""
        file = self.folder / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))


def _copy(project: Path) -> None:
    for name in FOLDERS:
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, project / name)
    # The tests' own Python runs the program.
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


def steps(done: subprocess.CompletedProcess[str]) -> dict[str, set[str]]:
    """Returns what `pulumi preview --json` would do: operation -> last parts of types."""
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, set[str]] = {}
    for step in json.loads(done.stdout)["steps"]:
        kind = step["urn"].split("::")[-2].split(":")[-1]
        if step["op"] != "same" and kind != "Stack":
            found.setdefault(step["op"], set()).add(kind)
    return found


@dataclass(frozen=True)
class Events:
    """What the engine told of an `up` or a `destroy`."""

    operations: frozenset[tuple[str, str]]
    """Of "create", "update", "replace", "delete", and the last part of a type."""
    errors: tuple[str, ...]

    @classmethod
    def of(cls, output: str) -> Events:
        """Reads the output of `pulumi up --json`, an event a line."""
        events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        made = [event["resourcePreEvent"]["metadata"] for event in events if _is("resource", event)]
        said = [event["diagnosticEvent"] for event in events if _is("diagnostic", event)]
        return cls(
            frozenset(
                (one["op"], one["type"].split(":")[-1])
                for one in made
                if one["op"] in ("create", "update", "replace", "delete")
                and one["type"].startswith("azure-native:")
            ),
            tuple(one["message"].strip() for one in said if one["severity"] == "error"),
        )


def _is(kind: str, event: Mapping[str, Any]) -> bool:
    return f"{kind}Event" in event or f"{kind}PreEvent" in event
