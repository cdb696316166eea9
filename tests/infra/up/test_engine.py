"""The stack's life cycle with Pulumi's real engine and the Azure stand-in.

Each `up` and each preview takes seconds, so each test checks several things in sequence.
tests/rehearsal/drivers checks, without the engine, every setting's effect on the resources.
"""

from __future__ import annotations

import pytest

from infra.config.read_stack import SECRET
from infra.stack.run_command import HEAD_SOFTWARE, TRAINING
from rehearsal.azure.management.management_faults import Faults
from rehearsal.azure.management.scale_set_changes import SetMachines
from rehearsal.azure.resources.azure_stand_in import Azure
from rehearsal.azure.resources.resource_kinds import all_of
from rehearsal.azure.resources.run_commands import RUN_COMMAND
from rehearsal.scenario.stack_changes import KEPT
from tests.infra.declared_stack import SSH_KEY
from tests.infra.up import engine_stack
from tests.infra.up.engine_stack import Stack, needs_pulumi
from tests.infra.up.failing_azure import REASON

stack, declared = engine_stack.stack, engine_stack.declared
pytestmark = [pytest.mark.slow, needs_pulumi]


RAY_UNIT = "infra/boot/files/head/etc/systemd/system/ray-head.service"


def execution_of(stack: Stack) -> str:
    """Returns the execution ID of the last start of the training."""
    commands = all_of(stack.azure(), RUN_COMMAND)
    (training,) = [command for key, command in commands.items() if key.endswith(f"/{TRAINING}")]
    return str(training.instance_view["executionId"])


def set_capacity(stack: Stack, machines: int) -> None:
    """Does what Ray's autoscaler on the head does."""
    (set_id,) = all_of(stack.azure(), "VirtualMachineScaleSet")
    SetMachines(Azure(stack.azure_file)).resize(set_id, machines, "", Faults())


def capacity(stack: Stack) -> int:
    (scale_set,) = all_of(stack.azure(), "VirtualMachineScaleSet").values()
    return int(scale_set.inputs["sku"]["capacity"])


def accounts(stack: Stack) -> list[str]:
    return list(all_of(stack.azure(), "StorageAccount"))


def succeed(stack: Stack, *command: str) -> None:
    done = stack.pulumi(*command)
    assert done.returncode == 0, done.stdout + done.stderr


# What changes what


def test_a_preview_creates_nothing(stack: Stack) -> None:
    assert "head" in stack.steps()["create"]
    assert stack.azure() == {}


def test_a_second_up_changes_nothing(declared: Stack) -> None:
    declared.expect_no_changes()


def test_a_changed_experiment_and_payload_only_run_the_training_again(declared: Stack) -> None:
    declared.edit("experiments/pong-gpu.yaml", "time_total_s: 3600", "time_total_s: 1800")
    declared.edit(
        "payload/commands/arguments.py",
        'DEFAULT_RESULTS = Path("results")',
        'DEFAULT_RESULTS = Path("r")',
    )
    assert declared.steps() == {"update": {"payload-1", "payload-2", "training"}}


def test_more_workers_only_tell_the_head(declared: Stack) -> None:
    declared.config("maxWorkers", "5")
    assert declared.steps() == {"update": {"head-software"}}


def test_a_changed_boot_file_replaces_the_head_says_so_and_starts_the_training(
    declared: Stack,
) -> None:
    before = execution_of(declared)
    declared.edit(RAY_UNIT, "RestartSec=2", "RestartSec=3")
    payload = {"payload-1", "payload-2"}
    assert declared.steps() == {"replace": {"head", "head-software", *payload, "training"}}
    succeed(declared, "up", "--yes", "--skip-preview")
    assert execution_of(declared) != before


def test_no_change_of_the_scale_set_deletes_workers(declared: Stack) -> None:
    set_capacity(declared, 3)
    assert declared.steps() == {}  # Their number is the head's business.
    declared.pulumi("config", "set", "--path", "volley:tags.owner", "somebody")
    for command in ("preview", "up --yes --skip-preview"):
        failed = declared.pulumi(*command.split())
        assert failed.returncode != 0
        assert "the cluster has 3 workers" in failed.stdout + failed.stderr
        assert capacity(declared) == 3
    done = declared.make_target("up")
    assert done.returncode == 0, done.stdout + done.stderr
    assert capacity(declared) == 3
    tags = next(iter(all_of(declared.azure(), "VirtualMachineScaleSet").values())).inputs["tags"]
    assert tags["owner"] == "somebody"


def test_a_changed_team_replaces_no_machine(declared: Stack) -> None:
    before = execution_of(declared)
    second = SSH_KEY.replace("AAAAC3NzaC1lZDI1NTE5AAAAI", "AAAAC3NzaC1lZDI1NTE5AAAAJ")
    declared.config("adminCidr", "198.51.100.4/32, 203.0.113.7/32")
    declared.config("sshPublicKey", f"{SSH_KEY}\n{second}\n")
    assert declared.steps() == {"update": {"head-nsg", "head-software", "volleydev"}}
    succeed(declared, "up", "--yes", "--skip-preview")
    assert execution_of(declared) == before
    # A machine that is made later has today's keys too.
    declared.config("headSpot", "true")
    succeed(declared, "up", "--yes", "--skip-preview")
    commands = all_of(declared.azure(), RUN_COMMAND)
    (software,) = [command for key, command in commands.items() if key.endswith(HEAD_SOFTWARE)]
    assert "unpack authorized_keys" in software.inputs["source"]["script"]
    declared.expect_no_changes()


# What fails


def test_after_each_failure_the_next_up_continues_until_the_training_runs(stack: Stack) -> None:
    failed = stack.up(AZURE_FAILING="NatGateway")
    assert failed.returncode != 0
    assert "did not come up" in failed.stdout + failed.stderr

    failed = stack.up(AZURE_FAILING="VirtualMachine")
    assert "SkuNotAvailable" in failed.stdout + failed.stderr

    # Azure reserves the head's network interface for the VM of that name for a while.
    failed = stack.up(AZURE_FAILING=RUN_COMMAND)
    assert failed.returncode != 0
    assert REASON in failed.stdout + failed.stderr
    refused = execution_of(stack)

    assert stack.up().returncode == 0
    started = execution_of(stack)
    assert started != refused

    stack.expect_no_changes()
    assert execution_of(stack) == started


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


# Its end, and what others change


def test_destroy_leaves_the_results_and_new_lives_begin_with_and_without_them(
    declared: Stack,
) -> None:
    succeed(declared, "destroy", "--yes", "--skip-preview")
    assert len({key.split("/")[4] for key in declared.azure()}) == 1
    assert declared.kinds() == KEPT
    (old,) = accounts(declared)

    # Immediately, while the names of deleted resources are still reserved.
    succeed(declared, "up", "--yes", "--skip-preview")
    assert len(accounts(declared)) == 2

    succeed(declared, "destroy", "--yes", "--skip-preview")
    declared.config("resultsAccountId", old)
    succeed(declared, "up", "--yes", "--skip-preview")
    assert {"PrivateEndpoint", "VirtualMachine", RUN_COMMAND} <= set(declared.kinds())
    assert len(accounts(declared)) == 2


def test_refresh_and_up_repair_exactly_what_somebody_has_changed(declared: Stack) -> None:
    set_capacity(declared, 3)
    succeed(declared, "refresh", "--yes", "--skip-preview")
    assert declared.steps() == {}

    azure = Azure(declared.azure_file)
    before = {
        key: one.inputs for key, one in all_of(azure.resources(), "NetworkSecurityGroup").items()
    }
    head, workers = before
    azure.update(head, {**before[head], "tags": {"somebody": "else"}})
    azure.update(workers, {**before[workers], "securityRules": []})
    succeed(declared, "refresh", "--yes", "--skip-preview")
    assert declared.steps() == {"update": {"head-nsg", "workers-nsg"}}
    succeed(declared, "up", "--yes", "--skip-preview")
    after = all_of(declared.azure(), "NetworkSecurityGroup")
    assert {key: one.inputs for key, one in after.items()} == before
