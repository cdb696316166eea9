"""A stack with Pulumi's real engine and an Azure stand-in that can fail."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import Resource
from rehearsal.drivers.pulumi_cli import PulumiProject
from tests.infra.declared_stack import REQUIRED

needs_pulumi = pytest.mark.skipif(
    not shutil.which("pulumi"), reason="the pulumi CLI is not on the PATH"
)
DEPLOY = "import sys; from infra.up.deploy import main; sys.exit(main(sys.argv[1:], pause_s=1))"

PARTS = ("home", "project", "state", "azure.json")
"""The files and folders below the stack's folder that a run of pulumi changes."""


class Stack(PulumiProject):
    """A copy of the project with its own stack."""

    def up(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.pulumi("up", "--yes", "--skip-preview", *arguments, **environment)

    def make_target(self, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs `make up` or `make down`, with a pause of one second between attempts."""
        return subprocess.run(
            [sys.executable, "-c", DEPLOY, command, "--yes", "--skip-preview"],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def is_kept(self, name: str) -> bool:
        return (self.folder.parent / name).exists()

    def keep(self, name: str) -> None:
        """Saves the project, Pulumi's state and Azure under a name."""
        for part in PARTS:
            _copy(self.folder.parent / part, self.folder.parent / name / part)

    def reset_to(self, name: str) -> None:
        """Restores the project, Pulumi's state and Azure as saved under a name."""
        for part in PARTS:
            _copy(self.folder.parent / name / part, self.folder.parent / part)

    def config(self, key: str, value: str) -> None:
        assert self.pulumi("config", "set", f"volley:{key}", "--", value).returncode == 0

    def edit(self, path: str, old: str, new: str) -> None:
        """Replaces a text that is in a file of the project."""
        file = self.folder / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))

    def steps(self) -> dict[str, set[str]]:
        """Returns the steps of `pulumi preview`: operation -> resource names, e.g. "head-nic"."""
        done = self.pulumi("preview", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        steps: dict[str, set[str]] = {}
        for step in json.loads(done.stdout)["steps"]:
            name = step["urn"].rpartition("::")[2].removeprefix("volley-dev-")
            if step["op"] != "same" and "pulumi:pulumi:Stack" not in step["urn"].split("::")[-2]:
                steps.setdefault(step["op"], set()).add(name)
        return steps

    def expect_no_changes(self) -> None:
        done = self.up("--expect-no-changes")
        assert done.returncode == 0, done.stdout + done.stderr

    def kinds(self) -> list[str]:
        """Returns the types of all existing resources, with duplicates."""
        return sorted(resource.kind for resource in self.azure().values())

    def azure(self) -> dict[str, Resource]:
        """Returns all existing resources by ID."""
        return Azure(self.azure_file).resources()

    @property
    def azure_file(self) -> Path:
        return Path(self.environment["AZURE_FILE"])


def _copy(source: Path, target: Path) -> None:
    """Makes the target a copy of the source, which may not exist."""
    if target.is_dir():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    target.parent.mkdir(exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    elif source.exists():
        shutil.copy(source, target)


@cache
def _engine(folder: Path) -> Stack:
    """Returns the one stack of this process, which each test resets."""
    folder.mkdir()
    file = str(folder / "azure.json")
    made = Stack.make(folder, "dev", "tests.infra.up.failing_azure", AZURE_FILE=file)
    made.configure({**REQUIRED, "checkQuota": "false"})
    made.keep("new")
    return made


@pytest.fixture
def stack(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """A stack without any resources yet."""
    engine = _engine(tmp_path_factory.getbasetemp() / "engine")
    engine.reset_to("new")
    return engine


@pytest.fixture
def declared(stack: Stack) -> Stack:
    """A stack as its first `up` left it; that `up` runs only once."""
    if not stack.is_kept("declared"):
        done = stack.up()
        assert done.returncode == 0, done.stdout + done.stderr
        stack.keep("declared")
    stack.reset_to("declared")
    return stack
