"""The stack declared by the pulumi CLI, with Pulumi's own engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from rehearsal.drivers.driver import STACK, Operation, Result
from rehearsal.drivers.pulumi_project import PulumiProject

DEPLOY_UP = [sys.executable, "-m", "infra.up.deploy", "up", "--yes", "--skip-preview"]
OPERATIONS = ("create", "update", "replace", "delete")


class PulumiCli:
    """Runs `pulumi up` and `pulumi destroy`; the rehearsal's backend stands for azure-native."""

    name = "pulumi"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "pulumi"
        self.said = ""
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
        """Runs `pulumi preview`; returns what its user reads."""
        self._configure(config)
        done = self.project.pulumi("preview", "--non-interactive")
        return f"{done.stdout}{done.stderr}"

    def make_up(self) -> Result:
        """Runs `make up`, which continues after a run that was killed."""
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
        self.project.configure({key: _value(text) for key, text in config.items()})

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
        self.said = done.stdout
        operations, errors = read_events(log.read_text() if log.exists() else "")
        error = "" if done.returncode == 0 else "\n".join([*errors, done.stderr]).strip()
        return Result(error, operations)


def read_events(output: str) -> tuple[frozenset[tuple[Operation, str]], list[str]]:
    """Returns what the engine did to Azure's resources, and its errors.

    Args:
        output: Of `pulumi up --event-log`, an event a line.
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


def _value(text: str) -> Any:
    """Lists and mappings are given to `read_settings` as JSON, to Pulumi as they are."""
    return json.loads(text) if text.startswith(("[", "{")) else text
