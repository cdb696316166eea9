"""A stack with Pulumi's real engine and Azure's stand-in with faults."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import Resource
from rehearsal.drivers.pulumi_project import PulumiProject
from tests.infra.declared_stack import REQUIRED

needs_pulumi = pytest.mark.skipif(
    not shutil.which("pulumi"), reason="the pulumi CLI is not on the PATH"
)
DEPLOY = "import sys; from infra.up.deploy import main; sys.exit(main(sys.argv[1:], pause_s=1))"


class Stack(PulumiProject):
    """A copy of the project with a stack of its own."""

    def up(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.pulumi("up", "--yes", "--skip-preview", *arguments, **environment)

    def make_target(self, command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs `make up` or `make down`, which waits a second where Azure needs time."""
        return subprocess.run(
            [sys.executable, "-c", DEPLOY, command, "--yes", "--skip-preview"],
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def config(self, key: str, value: str) -> None:
        assert self.pulumi("config", "set", f"volley:{key}", "--", value).returncode == 0

    def edit(self, path: str, old: str, new: str) -> None:
        """Replaces a text that is in a file of the project."""
        file = self.folder / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))

    def steps(self) -> dict[str, set[str]]:
        """What `pulumi preview` would do: operation -> last parts of the resources' types."""
        done = self.pulumi("preview", "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, set[str]] = {}
        for step in json.loads(done.stdout)["steps"]:
            kind = step["urn"].split("::")[-2].split(":")[-1]
            if step["op"] != "same" and kind != "Stack":
                found.setdefault(step["op"], set()).add(kind)
        return found

    def kinds(self) -> list[str]:
        """The type of everything that exists, as often as it exists."""
        return sorted(resource.kind for resource in self.azure().values())

    def azure(self) -> dict[str, Resource]:
        """Everything that exists, by resource id."""
        return Azure(self.azure_file).resources()

    @property
    def azure_file(self) -> Path:
        return Path(self.environment["AZURE_FILE"])


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    file = str(tmp_path / "azure.json")
    made = Stack.make(tmp_path, "dev", "tests.infra.up.failing_azure", AZURE_FILE=file)
    made.configure({**REQUIRED, "checkQuota": "false"})
    return made


@pytest.fixture
def declared(stack: Stack) -> Stack:
    """A stack that is up."""
    done = stack.up()
    assert done.returncode == 0, done.stdout + done.stderr
    return stack
