"""The commands in the documents and the workflow, run verbatim."""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import Any

import pytest
import yaml

from infra.config.cost import cost_table
from infra.config.stack_settings import StackSettings
from infra.stack.run_command import TRAINING
from rehearsal.azure.resources.run_commands import RUN_COMMAND
from tests.documents import document, table_rows
from tests.infra.declared_stack import REQUIRED, declare_stack
from tests.infra.up import engine_stack
from tests.infra.up.engine_stack import Stack, needs_pulumi
from tests.project import ROOT
from tests.started_make import run_make

stack, declared = engine_stack.stack, engine_stack.declared
pytestmark = pytest.mark.slow


@pytest.fixture
def workflow() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    return loaded


def shell(stack: Stack, command: str, **environment: str) -> str:
    """Returns the output of a command in the stack's folder."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=stack.folder,
        env={**stack.environment, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_only_the_preview_may_have_azures_trust(workflow: dict[str, Any]) -> None:
    allowed = {name: job.get("permissions", {}) for name, job in workflow["jobs"].items()}
    assert "id-token" not in {*workflow["permissions"], *allowed["test"]}
    assert allowed["preview"]["id-token"] == "write"


def test_the_workflow_names_each_action_by_its_digest(workflow: dict[str, Any]) -> None:
    # A tag can be moved to other code.
    used = [
        step["uses"] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step
    ]
    assert used
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in used)


def preview_command(job: dict[str, Any]) -> str:
    """Returns the shell command of the job's last `make`, with its variables expanded."""
    make, *arguments = shlex.split(job["steps"][-1]["run"])
    assert make == "make"
    return run_make("--dry-run", *arguments, folder=ROOT).stdout.splitlines()[-1]


def test_the_workflow_previews_the_dev_stack(workflow: dict[str, Any]) -> None:
    assert preview_command(workflow["jobs"]["preview"]).startswith("pulumi preview --stack dev ")


@needs_pulumi
def test_the_workflows_preview_has_all_that_the_stack_needs(
    stack: Stack, workflow: dict[str, Any]
) -> None:
    for key in REQUIRED:
        stack.pulumi("config", "rm", f"volley:{key}")
    job = workflow["jobs"]["preview"]
    # The repository's variables stand for themselves.
    assert job["env"]["ADMIN_CIDR"] == "${{ vars.ADMIN_CIDR }}"
    assert job["env"]["SSH_PUBLIC_KEY"] == "${{ vars.SSH_PUBLIC_KEY }}"
    preview = shell(
        stack,
        f"{preview_command(job)} --non-interactive",
        ADMIN_CIDR=REQUIRED["adminCidr"],
        SSH_PUBLIC_KEY=REQUIRED["sshPublicKey"],
    )
    assert "VirtualMachineScaleSet" in preview


def test_the_documented_command_shows_the_start_of_the_dev_stack() -> None:
    (names,) = re.findall(
        r"--vm-name (\S+) --name (\S+) --instance-view", document("docs/azure.md")
    )
    command = declare_stack().one(RUN_COMMAND, TRAINING)
    assert names == (command["vmName"], command["runCommandName"])


@needs_pulumi
def test_the_resource_group_of_the_documented_commands_is_an_output(declared: Stack) -> None:
    group = shell(declared, "pulumi stack output resourceGroup").strip()
    assert any(
        f"/resourceGroups/{group}/providers/Microsoft.Compute/" in key for key in declared.azure()
    )


def test_the_documented_outputs_are_those_of_the_stack() -> None:
    assert list(table_rows("docs/azure.md", "Outputs")) == list(declare_stack().outputs)


@needs_pulumi
def test_the_documented_commands_set_lists_and_objects(stack: Stack) -> None:
    commands = re.findall(
        "^pulumi config set --path .*$", document("docs/configuration.md"), re.MULTILINE
    )
    for command in commands:
        shell(stack, command)
    settings = yaml.safe_load((stack.folder / "Pulumi.dev.yaml").read_text())["config"]
    assert settings["volley:pipPackages"] == ["einops", "wandb==0.19.1"]
    assert settings["volley:aptPackages"] == ["htop"]
    assert settings["volley:environmentVariables"] == {"MY_MODE": "fast", "MY_SWITCH": "true"}
    shell(stack, "pulumi preview --non-interactive")


def test_the_documented_cost_is_that_of_the_dev_stack() -> None:
    config = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["config"]
    given = {key.removeprefix("volley:"): value for key, value in config.items()}
    table = cost_table(StackSettings.model_validate(given))
    assert table in (ROOT / "docs/azure.md").read_text()
