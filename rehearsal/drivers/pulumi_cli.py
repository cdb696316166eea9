"""The stack with Pulumi's own engine: the pulumi CLI, a backend of files, and the stage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from rehearsal.drivers.driver import Operation, Result
from rehearsal.drivers.pulumi_project import Events, PulumiProject

STACK = "rehearsal"


class WithPulumi:
    """Drives the stage by `pulumi up` and `pulumi destroy`."""

    name = "pulumi"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "pulumi"

    @cached_property
    def _project(self) -> PulumiProject:
        """Made at the first `up`, in a folder that dies with the rehearsal that runs."""
        return PulumiProject.make(self._folder, STACK, "rehearsal.provider")

    def up(self, config: Mapping[str, str]) -> Result:
        self._project.configure({key: _value(text) for key, text in config.items()})
        result = self._run("up")
        if result.error:
            return result
        outputs = json.loads(self._project.pulumi("stack", "output", "--json").stdout)
        return Result("", result.operations, outputs)

    def destroy(self) -> Result:
        return self._run("destroy")

    def _run(self, command: str) -> Result:
        done = self._project.pulumi(command, "--yes", "--skip-preview", "--json")
        events = Events.of(done.stdout)
        operations = cast("frozenset[tuple[Operation, str]]", events.operations)
        error = "" if done.returncode == 0 else "\n".join([*events.errors, done.stderr]).strip()
        return Result(error, operations)


def _value(text: str) -> Any:
    """Lists and mappings are given to `read_settings` as JSON, to Pulumi as they are."""
    return json.loads(text) if text.startswith(("[", "{")) else text
