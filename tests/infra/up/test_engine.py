"""The stack's life with Pulumi's real engine and Azure's stand-in."""

from __future__ import annotations

import pytest

from infra.config.read_stack import SECRET
from infra.stack.last_start import TRAINING
from rehearsal.azure.management.management_faults import Faults
from rehearsal.azure.management.scale_set_changes import SetMachines
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import Properties, all_of
from rehearsal.azure.resources.run_commands import RUN_COMMAND
from rehearsal.scenario.stack_changes import KEPT
from tests.infra.up import engine_stack
from tests.infra.up.engine_stack import Stack, needs_pulumi
from tests.infra.up.failing_azure import REASON

stack, declared = engine_stack.stack, engine_stack.declared
pytestmark = [pytest.mark.slow, needs_pulumi]


MLFLOW_UNIT = "infra/boot/files/head/etc/systemd/system/mlflow.service"


def execution_of(stack: Stack) -> str:
    """What names the last start of the training."""
    commands = all_of(stack.azure(), RUN_COMMAND)
    (found,) = [one for key, one in commands.items() if key.endswith(f"/{TRAINING}")]
    return str(found.instance_view["executionId"])


def set_capacity(stack: Stack, machines: int) -> None:
    """Does what Ray's autoscaler on the head does."""
    (set_id,) = all_of(stack.azure(), "VirtualMachineScaleSet")
    SetMachines(Azure(stack.azure_file)).resize(set_id, machines, "", Faults())


def capacity(stack: Stack) -> int:
    (found,) = all_of(stack.azure(), "VirtualMachineScaleSet").values()
    return int(found.inputs["sku"]["capacity"])


def kinds(stack: Stack) -> set[str]:
    return {key.split("/")[-2] for key in stack.azure()}


def test_a_preview_creates_nothing(stack: Stack) -> None:
    assert "VirtualMachine" in stack.steps()["create"]
    assert stack.azure() == {}


def test_a_second_up_changes_nothing(declared: Stack) -> None:
    done = declared.up("--expect-no-changes")
    assert done.returncode == 0, done.stdout


def test_a_changed_experiment_only_runs_the_training_again(declared: Stack) -> None:
    declared.edit("experiments/pong-gpu.yaml", "time_total_s: 3600", "time_total_s: 1800")
    assert declared.steps() == {"update": {"VirtualMachineRunCommandByVirtualMachine"}}


def test_a_changed_payload_only_runs_the_training_again(declared: Stack) -> None:
    declared.edit(
        "payload/commands/arguments.py",
        'DEFAULT_RESULTS = Path("results")',
        'DEFAULT_RESULTS = Path("r")',
    )
    assert declared.steps() == {"update": {"VirtualMachineRunCommandByVirtualMachine"}}


def test_more_workers_only_run_a_command(declared: Stack) -> None:
    declared.config("maxWorkers", "5")
    assert declared.steps() == {"update": {"VirtualMachineRunCommandByVirtualMachine"}}


def test_the_number_of_workers_is_the_heads_business(declared: Stack) -> None:
    set_capacity(declared, 3)
    assert declared.steps() == {}
    assert declared.pulumi("refresh", "--yes", "--skip-preview").returncode == 0
    assert declared.steps() == {}


@pytest.mark.parametrize("command", ["preview", "up --yes --skip-preview"])
def test_a_change_of_the_scale_set_that_would_delete_workers_is_refused(
    declared: Stack, command: str
) -> None:
    set_capacity(declared, 3)
    declared.config("owner", "somebody")
    failed = declared.pulumi(*command.split())
    assert failed.returncode != 0
    assert "the cluster has 3 workers" in failed.stdout + failed.stderr
    assert capacity(declared) == 3


def test_make_up_makes_a_change_of_the_scale_set_and_keeps_the_workers(declared: Stack) -> None:
    set_capacity(declared, 3)
    declared.config("owner", "somebody")
    done = declared.make_target("up")
    assert done.returncode == 0, done.stdout + done.stderr
    assert capacity(declared) == 3


def test_a_changed_boot_file_replaces_the_head_and_says_so(declared: Stack) -> None:
    declared.edit(MLFLOW_UNIT, "RestartSec=5", "RestartSec=6")
    replaced = {"VirtualMachine", "VirtualMachineRunCommandByVirtualMachine"}
    assert declared.steps() == {"replace": replaced}


def test_a_replaced_head_is_told_to_train(declared: Stack) -> None:
    before = execution_of(declared)
    declared.edit(MLFLOW_UNIT, "RestartSec=5", "RestartSec=6")
    done = declared.up()
    assert done.returncode == 0, done.stdout + done.stderr
    assert execution_of(declared) != before


def test_a_head_for_which_there_was_no_capacity_is_made_by_the_next_up(stack: Stack) -> None:
    failed = stack.up(AZURE_FAILING="VirtualMachine")
    assert "SkuNotAvailable" in failed.stdout + failed.stderr
    # Its network interface is reserved for the VM of that name for a while.
    done = stack.up()
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_failed_start_says_why(stack: Stack) -> None:
    failed = stack.up(AZURE_FAILING=RUN_COMMAND)
    assert failed.returncode != 0
    assert REASON in failed.stdout + failed.stderr


def test_a_training_that_did_not_start_is_started_by_the_next_up(stack: Stack) -> None:
    stack.up(AZURE_FAILING=RUN_COMMAND)
    before = execution_of(stack)
    done = stack.up()
    assert done.returncode == 0, done.stdout + done.stderr
    assert execution_of(stack) != before


def test_a_training_that_was_started_at_last_is_not_started_again(stack: Stack) -> None:
    stack.up(AZURE_FAILING=RUN_COMMAND)
    assert stack.up().returncode == 0
    before = execution_of(stack)
    done = stack.up("--expect-no-changes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert execution_of(stack) == before


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
    assert declared.kinds() == KEPT


def test_a_second_life_comes_up_at_once(declared: Stack) -> None:
    declared.pulumi("destroy", "--yes", "--skip-preview")
    done = declared.up()
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_new_stack_continues_with_the_results_of_an_old_one(declared: Stack) -> None:
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


def test_a_refresh_of_what_nobody_has_changed_changes_nothing(declared: Stack) -> None:
    assert declared.pulumi("refresh", "--yes", "--skip-preview").returncode == 0
    assert declared.steps() == {}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("NetworkSecurityGroup", {"tags": {"somebody": "else"}}),
        ("NetworkSecurityGroup", {"securityRules": []}),
    ],
)
def test_refresh_and_up_repair_exactly_what_somebody_has_changed(
    declared: Stack, kind: str, changes: Properties
) -> None:
    azure = Azure(declared.azure_file)
    changed = next(key for key, one in declared.azure().items() if one.kind == kind)
    before = declared.azure()[changed].inputs
    azure.update(changed, {**before, **changes})
    assert declared.pulumi("refresh", "--yes", "--skip-preview").returncode == 0
    assert declared.steps() == {"update": {kind}}
    assert declared.up().returncode == 0
    assert declared.azure()[changed].inputs == before
