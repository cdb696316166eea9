"""The stack's life with Pulumi's real engine and Azure's stand-in."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from infra.config.read_stack import SECRET
from rehearsal.azure.resource_kinds import Resource
from rehearsal.azure.resources import Azure
from rehearsal.drivers.pulumi_project import PulumiProject
from tests.infra.stack import REQUIRED

needs_pulumi = pytest.mark.skipif(
    not shutil.which("pulumi"), reason="the pulumi CLI is not on the PATH"
)
pytestmark = [pytest.mark.slow, needs_pulumi]


MLFLOW_UNIT = "infra/boot/files/head/etc/systemd/system/mlflow.service"


class Stack(PulumiProject):
    """A copy of the project with a stack of its own."""

    def up(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.pulumi("up", "--yes", "--skip-preview", *arguments, **environment)

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

    def azure(self) -> dict[str, Resource]:
        """Everything that exists, by resource id."""
        return Azure(Path(self.environment["AZURE_FILE"])).resources()


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    file = str(tmp_path / "azure.json")
    made = Stack.make(tmp_path, "dev", "tests.infra.failing_azure", AZURE_FILE=file)
    made.configure(REQUIRED)
    return made


@pytest.fixture
def declared(stack: Stack) -> Stack:
    """A stack that is up."""
    done = stack.up()
    assert done.returncode == 0, done.stdout + done.stderr
    return stack


def run_command_of(stack: Stack) -> str:
    """The id of the only run command, which says on which VM."""
    (found,) = [key for key in stack.azure() if "/runCommands/" in key]
    return found


def kinds(stack: Stack) -> set[str]:
    return {key.split("/")[-2] for key in stack.azure()}


def test_a_preview_creates_nothing(stack: Stack) -> None:
    assert "VirtualMachine" in stack.steps()["create"]
    assert stack.azure() == {}


def test_a_second_up_changes_nothing(declared: Stack) -> None:
    done = declared.up("--expect-no-changes")
    assert done.returncode == 0, done.stdout


def test_a_changed_experiment_only_runs_the_training_anew(declared: Stack) -> None:
    declared.edit("experiments/pong-gpu.yaml", "time_total_s: 3600", "time_total_s: 1800")
    assert declared.steps() == {"update": {"VirtualMachineRunCommandByVirtualMachine"}}


def test_a_changed_payload_only_runs_the_training_anew(declared: Stack) -> None:
    declared.edit("payload/__init__.py", '"""', '"""Changed. ')
    assert declared.steps() == {"update": {"VirtualMachineRunCommandByVirtualMachine"}}


def test_more_workers_only_change_the_scale_set(declared: Stack) -> None:
    declared.config("maxWorkers", "5")
    assert declared.steps() == {"update": {"VirtualMachineScaleSet"}}


def test_a_changed_boot_file_replaces_the_head_and_says_so(declared: Stack) -> None:
    declared.edit(MLFLOW_UNIT, "RestartSec=5", "RestartSec=6")
    replaced = {"VirtualMachine", "VirtualMachineRunCommandByVirtualMachine"}
    assert declared.steps() == {"replace": replaced}


def test_a_replaced_head_is_told_to_train(declared: Stack) -> None:
    before = run_command_of(declared)
    declared.edit(MLFLOW_UNIT, "RestartSec=5", "RestartSec=6")
    done = declared.up()
    assert done.returncode == 0, done.stdout + done.stderr
    assert run_command_of(declared) != before


def test_an_up_that_failed_half_way_is_finished_by_the_next(stack: Stack) -> None:
    failed = stack.up(AZURE_FAILING="NatGateway")
    assert failed.returncode != 0
    assert "did not come up" in failed.stdout + failed.stderr
    done = stack.up()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "runCommands" in kinds(stack)


def test_destroy_leaves_nothing_but_the_results(declared: Stack) -> None:
    done = declared.pulumi("destroy", "--yes", "--skip-preview")
    assert done.returncode == 0, done.stdout + done.stderr
    groups = {key.split("/")[4] for key in declared.azure()}
    assert len(groups) == 1
    assert kinds(declared) == {"resourceGroups", "storageAccounts", "containers"}


def test_a_second_life_comes_up_at_once(declared: Stack) -> None:
    declared.pulumi("destroy", "--yes", "--skip-preview")
    done = declared.up()
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_new_stack_goes_on_with_the_results_of_an_old_one(declared: Stack) -> None:
    (account,) = [
        key for key in declared.azure() if "/storageAccounts/" in key and key.count("/") == 8
    ]
    declared.pulumi("destroy", "--yes", "--skip-preview")
    declared.config("resultsAccountId", account)
    done = declared.up()
    assert done.returncode == 0, done.stdout + done.stderr
    assert kinds(declared) >= {"privateEndpoints", "virtualMachines", "runCommands"}
    assert sum("/storageAccounts/" in key and key.count("/") == 8 for key in declared.azure()) == 1


def test_wrong_configuration_creates_nothing_and_is_told_in_full(stack: Stack) -> None:
    stack.config("headSize", "Standard_NC6")
    stack.config("adminCidr", "0.0.0.0/0")
    failed = stack.up()
    assert failed.returncode != 0
    output = failed.stdout + failed.stderr
    assert "its successor is Standard_NC4as_T4_v3" in output
    assert "allowPublicSsh" in output
    assert "Traceback" not in output
    assert stack.azure() == {}


def test_a_secret_is_refused_and_not_shown(stack: Stack) -> None:
    key = "volley:environmentVariables.TOKEN"
    assert stack.pulumi("config", "set", "--secret", "--path", key, "s3cret").returncode == 0
    done = stack.pulumi("preview")
    assert done.returncode != 0
    assert f'environmentVariables: "(hidden)": {SECRET}' in done.stdout
    assert "s3cret" not in done.stdout + done.stderr


def test_packages_that_do_not_fit_create_nothing_and_are_told(stack: Stack) -> None:
    stack.configure({"pipPackages": [f"package-number-{i}" for i in range(5000)]})
    failed = stack.up()
    assert failed.returncode != 0
    output = failed.stdout + failed.stderr
    assert "more than Azure's 65,535" in output
    assert "Traceback" not in output
    assert stack.azure() == {}
