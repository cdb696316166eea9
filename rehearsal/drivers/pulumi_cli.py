"""The stack declared by the pulumi CLI, with Pulumi's own engine, in a copy of the project."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Self, cast

import yaml

from rehearsal.drivers.driver import STACK, Operation, Result
from rehearsal.host_paths import ROOT
from rehearsal.host_shell import CommandError

DEPLOY_UP = [sys.executable, "-m", "infra.up.deploy", "up", "--yes", "--skip-preview"]
OPERATIONS = ("create", "update", "replace", "delete")
FOLDERS = ("head", "infra", "payload", "experiments", "requirements")
FILES = ("pyproject.toml", "README.md", "Pulumi.dev.yaml")


class PulumiCli:
    """Runs `pulumi up` and `pulumi destroy`; the rehearsal's backend stands for azure-native."""

    name = "pulumi"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "pulumi"
        self.output = ""
        """Output of the last `pulumi up` or `pulumi destroy`."""

    @cached_property
    def project(self) -> PulumiProject:
        return PulumiProject.make(self._folder, STACK, "rehearsal.backend")

    def up(self, config: Mapping[str, str]) -> Result:
        self._configure(config)
        result = self._run("up")
        if result.error:
            return result
        outputs = json.loads(self.project.pulumi("stack", "output", "--json").stdout)
        return Result("", result.operations, outputs)

    def preview(self, config: Mapping[str, str]) -> str:
        self._configure(config)
        done = self.project.pulumi("preview", "--non-interactive")
        return f"{done.stdout}{done.stderr}"

    def make_up(self, config: Mapping[str, str] | None = None) -> Result:
        """Runs `make up`, which continues after a killed run; None keeps the configuration."""
        if config is not None:
            self._configure(config)
        done = self.project.run(*DEPLOY_UP)
        return Result("" if done.returncode == 0 else f"{done.stdout}{done.stderr}")

    def killed_make_up(self, config: Mapping[str, str], until: Callable[[], None]) -> None:
        """Starts `make up` and kills it, with all its processes, when `until` returns."""
        self._configure(config)
        with subprocess.Popen(
            DEPLOY_UP,
            cwd=self.project.folder,
            env=self.project.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                until()
            finally:
                os.killpg(process.pid, signal.SIGKILL)

    def destroy(self) -> Result:
        return self._run("destroy")

    def _configure(self, config: Mapping[str, str]) -> None:
        """Configures pulumi; parses lists and mappings, which `read_settings` takes as JSON."""
        lists = {key: json.loads(text) for key, text in config.items() if text[:1] in ("[", "{")}
        self.project.configure({**config, **lists})

    def _run(self, command: str) -> Result:
        log = self._folder.with_name("pulumi-events.json")
        log.unlink(missing_ok=True)
        done = self.project.pulumi(
            command,
            "--yes",
            "--skip-preview",
            "--event-log",
            str(log),
            PULUMI_DEBUG_COMMANDS="true",  # Otherwise the CLI hides --event-log.
        )
        self.output = done.stdout
        operations, errors = read_events(log.read_text() if log.exists() else "")
        error = "" if done.returncode == 0 else "\n".join([*errors, done.stderr]).strip()
        return Result(error, operations)


def read_events(output: str) -> tuple[frozenset[tuple[Operation, str]], list[str]]:
    """Returns what the engine did to Azure's resources, and its errors.

    `output` has one event per line, as `pulumi up --event-log` writes them.
    """
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    steps = [
        event["resourcePreEvent"]["metadata"] for event in events if "resourcePreEvent" in event
    ]
    diagnostics = [event["diagnosticEvent"] for event in events if "diagnosticEvent" in event]
    operations = frozenset(
        (step["op"], step["type"].split(":")[-1])
        for step in steps
        if step["op"] in OPERATIONS and step["type"].startswith("azure-native:")
    )
    errors = [event["message"].strip() for event in diagnostics if event["severity"] == "error"]
    return cast("frozenset[tuple[Operation, str]]", operations), errors


@dataclass(frozen=True)
class PulumiProject:
    """A copy of the project, where pulumi knows only this stack and our provider."""

    folder: Path
    stack: str
    environment: dict[str, str]

    @classmethod
    def make(cls, folder: Path, stack: str, provider: str, **environment: str) -> Self:
        """Copies the project into `folder` and makes the stack.

        The module `provider` runs as azure-native's provider, with the variables of `environment`.
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
