"""The stack with a variable number of workers: its resources and its run command."""

from __future__ import annotations

import base64
import bz2
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import validate_config

from head.cluster_settings import read_settings
from infra.boot.cloud_config import FILES, HEAD_SOFTWARE_UNITS
from infra.boot.head_wheel import PACKAGE, UNITS, head_files
from infra.config.stack_settings import StackSettings
from infra.stack import run_command
from infra.stack.head_software import IN_RAY, install_script
from infra.stack.identity import (
    AUTOSCALE_WRITER,
    BLOB_DATA_CONTRIBUTOR,
    IDENTITY_OPERATOR,
    VM_CONTRIBUTOR,
)
from infra.stack.run_command import LastStart
from tests.infra.boot.boot_scripts import Machine
from tests.infra.declared_stack import EXISTING_SUBNETS, REQUIRED, SSH_KEY, Declared, declare_stack

SCALE_SET = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets"
RUN_COMMAND = "VirtualMachineRunCommandByVirtualMachine"
SYSTEMCTL = '[[ "$*" != *is-active* || -e active ]]'
INSTALL = """
words=()
while (($#)); do
  case $1 in --owner | --group) shift ;; *) words+=("$1") ;; esac
  shift
done
/usr/bin/install "${words[@]}"
"""
"""Without the machine's users, which tests/head/identity/test_users.py has."""


@cache
def declared(**config: str) -> Declared:
    return declare_stack(**config)


def head_roles(stack: Declared) -> dict[str, str]:
    """Returns the scopes of the head's roles besides those on the results, by role."""
    principal = stack.resource("UserAssignedIdentity", "head").added["principalId"]
    roles = [one for one in stack.all("RoleAssignment") if one.inputs["principalId"] == principal]
    return {
        one.inputs["roleDefinitionId"].rpartition("/")[2]: one.inputs["scope"]
        for one in roles
        if not one.inputs["roleDefinitionId"].endswith(BLOB_DATA_CONTRIBUTOR)
    }


# What is declared


def test_a_scale_set_starts_empty_and_keeps_the_capacity_that_the_head_gives_it() -> None:
    scale_set = declared().resource("VirtualMachineScaleSet")
    assert scale_set.inputs["sku"]["capacity"] == 0
    assert "sku.capacity" in scale_set.options.ignoreChanges


def test_the_head_may_change_its_own_group_and_give_workers_their_identity_and_no_more() -> None:
    stack = declared()
    assert head_roles(stack) == {
        VM_CONTRIBUTOR: stack.resource("VirtualMachine").id.partition("/providers/")[0],
        IDENTITY_OPERATOR: stack.resource("UserAssignedIdentity", "workers").id,
        AUTOSCALE_WRITER: stack.resource("AutoscaleSetting").id,
    }


def test_the_head_may_join_workers_to_somebody_elses_subnet() -> None:
    scopes = [one.inputs["scope"] for one in declared(**EXISTING_SUBNETS).all("RoleAssignment")]
    assert EXISTING_SUBNETS["workerSubnetId"] in scopes
    assert EXISTING_SUBNETS["headSubnetId"] not in scopes


def test_a_head_that_does_not_scale_has_no_role_on_machines() -> None:
    assert head_roles(declared(scaling="cpu")) == {}


def test_where_azure_scales_it_has_rules_for_one_worker_more_or_less() -> None:
    setting = declared(scaling="cpu", minWorkers="2", maxWorkers="7").one("AutoscaleSetting")
    (profile,) = setting["profiles"]
    assert profile["capacity"] == {"minimum": "2", "maximum": "7", "default": "2"}
    triggers = [rule["metricTrigger"] for rule in profile["rules"]]
    changes = [rule["scaleAction"] for rule in profile["rules"]]
    assert [
        (one["operator"], one["threshold"], one["timeWindow"], change["direction"], change["value"])
        for one, change in zip(triggers, changes, strict=True)
    ] == [("GreaterThan", 80, "PT10M", "Increase", "1"), ("LessThan", 20, "PT30M", "Decrease", "1")]


def test_azure_measures_at_least_one_worker() -> None:
    (profile,) = declared(scaling="cpu").one("AutoscaleSetting")["profiles"]
    assert profile["capacity"]["minimum"] == "1"


@pytest.mark.parametrize("scaling", ["demand", "fixed"])
def test_where_the_head_scales_azure_allows_no_worker_without_its_lease(scaling: str) -> None:
    stack = declared(scaling=scaling)
    setting = stack.resource("AutoscaleSetting")
    (profile,) = setting.inputs["profiles"]
    assert profile["capacity"] == {"minimum": "0", "maximum": "0", "default": "0"}
    assert profile["rules"] == []
    assert setting.inputs["targetResourceUri"] == stack.resource("VirtualMachineScaleSet").id
    # Not before the head has the role, which takes minutes; then the head changes both.
    assert setting.inputs["enabled"] is False
    assert list(setting.options.ignoreChanges) == ["enabled", "profiles"]
    assert f'"lease": "{setting.id}"' in _settings(stack)
    head = stack.resource("UserAssignedIdentity", "head").added["principalId"]
    (role,) = [r.inputs for r in stack.all("RoleAssignment") if r.inputs["scope"] == setting.id]
    assert (role["principalId"], role["roleDefinitionId"][-36:]) == (head, AUTOSCALE_WRITER)


def test_where_azure_scales_there_is_no_lease() -> None:
    stack = declared(scaling="cpu")
    assert '"lease": ""' in _settings(stack)
    setting = stack.resource("AutoscaleSetting")
    assert setting.inputs["enabled"] is True
    assert not list(setting.options.ignoreChanges)
    # A head that has had a lease has let go of it.
    assert any("head-software" in name for name in setting.waits_for)
    assert setting.id not in [role.inputs["scope"] for role in stack.all("RoleAssignment")]


def _settings(stack: Declared) -> str:
    """Returns the cluster's settings that the run command brings to the head."""
    (script,) = [
        one.inputs["source"]["script"]
        for one in stack.all(RUN_COMMAND)
        if one.inputs["runCommandName"] == "head-software"
    ]
    packed = script.partition("unpack cluster-settings.json << 'END.'")[2].partition("END.")[0]
    return bz2.decompress(base64.b85decode("".join(packed.split()))).decode()


@pytest.mark.parametrize(
    "change",
    [
        {"maxWorkers": "7"},
        {"idleMinutes": "9"},
        {"sleepAfterMinutes": "0"},
        {"budget": "9"},
        {"scaling": "fixed"},
        {"scaling": "cpu"},
    ],
)
def test_a_change_of_the_limits_changes_the_run_command_alone(change: dict[str, str]) -> None:
    before, after = declared(), declared(**change)
    for role in ("head", "worker"):
        assert before.custom_data(role) == after.custom_data(role)
    texts = [_scripts(stack) for stack in (before, after)]
    assert texts[0]["training"] == texts[1]["training"]
    assert texts[0]["head-software"] != texts[1]["head-software"]


def test_the_limits_of_the_watchdog_change_in_place() -> None:
    before, after = declared(), declared(maxHours="5", budget="9")
    assert before.custom_data("head") == after.custom_data("head")
    limits = [json.loads(base64.b64decode(_head(stack)["userData"])) for stack in (before, after)]
    assert [(one["silent_hours"], one["max_hours"], one["budget"]) for one in limits] == [
        (3, 0, 0),
        (3, 5, 9),
    ]
    scale_set = after.one("VirtualMachineScaleSet")
    assert limits[0]["workers"] == scale_set["vmScaleSetName"]
    # A change of it sends the whole VM, which a running one need not be bothered with.
    assert _head(before)["userData"] == _head(declared(maxWorkers="7"))["userData"]
    assert "userData" not in _head(declared(scaling="cpu"))


def _head(stack: Declared) -> dict[str, Any]:
    return stack.one("VirtualMachine")


def _scripts(stack: Declared) -> dict[str, str]:
    return {
        one.inputs["runCommandName"]: one.inputs["source"]["script"].partition("\n# Sent")[2][30:]
        for one in stack.all(RUN_COMMAND)
    }


# What the run command does


@pytest.fixture
def head(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    (tmp_path / "var/lib/volley").mkdir(parents=True)
    for folder in ("usr/local/lib/volley", "etc/systemd/system", "etc/volley"):
        (tmp_path / folder).mkdir(parents=True)
    machine.command("systemctl", SYSTEMCTL)
    machine.command("id", "")
    machine.command("getent", 'echo "volley:x:1000:1000::$PWD/home/volley:/bin/bash"')
    machine.command("install", INSTALL)
    machine.command("systemd-run", "")
    machine.write("active", "")
    return machine


def apply(head: Machine, **changes: Any) -> subprocess.CompletedProcess[str]:
    settings = StackSettings.model_validate({**REQUIRED, **changes})
    script = install_script(settings, f"{SCALE_SET}/workers", "/head", "10.42.0.4", "/lease")
    return head.run(script)


@pytest.mark.slow
def test_ray_accepts_the_configuration_that_arrives(head: Machine) -> None:
    done = apply(head, maxWorkers=3)
    assert done.returncode == 0, done.stderr
    config = yaml.safe_load((head.root / "etc/volley/autoscaling.yaml").read_text())
    validate_config(config)
    assert config["available_node_types"]["worker"]["max_workers"] == 3


@pytest.mark.slow
def test_who_may_log_in_follows_the_settings(head: Machine) -> None:
    colleague = SSH_KEY.replace("admin@laptop", "colleague@laptop")
    keys = head.root / "home/volley/.ssh/authorized_keys"
    for team in ([SSH_KEY, colleague], [colleague]):
        assert apply(head, sshPublicKey="\n".join(team)).returncode == 0
        assert keys.read_text().splitlines() == team
        assert keys.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
@pytest.mark.parametrize(("scaling", "least"), [("demand", 1), ("fixed", 3)])
def test_a_fixed_cluster_wants_all_its_workers(head: Machine, scaling: str, least: int) -> None:
    assert apply(head, scaling=scaling, minWorkers=1, maxWorkers=3).returncode == 0
    config = yaml.safe_load((head.root / "etc/volley/autoscaling.yaml").read_text())
    assert config["available_node_types"]["worker"]["min_workers"] == least


def asked_early(head: Machine) -> list[str]:
    """Returns the worker counts requested before Ray's autoscaler runs."""
    calls = [call.split() for call in head.called() if call.startswith("systemd-run ")]
    return [words[words.index("head.autoscaler.first_workers") + 1] for words in calls]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ({"minWorkers": 1}, ["1"]),
        ({"minWorkers": 0}, []),
        ({"scaling": "fixed"}, ["3"]),
        ({"scaling": "cpu"}, []),
    ],
)
def test_the_first_workers_boot_beside_the_head(
    head: Machine, settings: dict[str, Any], asked: list[str]
) -> None:
    apply(head, maxWorkers=3, **settings)
    assert asked_early(head) == asked


@pytest.mark.slow
def test_the_output_has_the_public_host_key_and_ends_with_the_workers(head: Machine) -> None:
    (head.root / "etc/ssh").mkdir(parents=True)
    head.write("etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAAC3Nza root@head\n")
    first, second = apply(head, maxWorkers=3, scaling="cpu").stdout.splitlines()[-2:]
    assert LastStart("", "", f"{first}\n{second}").host_key == "ssh-ed25519 AAAAC3Nza"
    assert second.startswith("0 to 3 workers")


@pytest.mark.slow
def test_once_rays_autoscaler_has_reported_it_asks_alone(head: Machine) -> None:
    head.write("var/lib/volley/cluster-workers.json", "{}")
    apply(head, minWorkers=1)
    assert asked_early(head) == []


@pytest.mark.slow
def test_where_azure_scales_ray_starts_again_without_its_autoscaler(head: Machine) -> None:
    apply(head)
    assert apply(head, scaling="cpu").returncode == 0
    assert not (head.root / "etc/volley/autoscaling.yaml").exists()
    assert "systemctl restart ray-head.service" in head.called()


@pytest.mark.slow
def test_ray_imports_the_provider_that_arrives(head: Machine) -> None:
    apply(head)
    config = yaml.safe_load((head.root / "etc/volley/autoscaling.yaml").read_text())
    module, _, name = config["provider"]["module"].rpartition(".")
    code = f"import importlib; getattr(importlib.import_module('{module}'), '{name}')"
    path = {"PYTHONPATH": str(head.root / "usr/local/lib/volley/software")}
    subprocess.run([sys.executable, "-c", code], env=path, check=True)


@pytest.mark.slow
def test_the_head_reads_the_settings_that_arrive(
    head: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(head, maxWorkers=3, headSize="Standard_D4as_v5")
    file = head.root / "etc/volley/cluster-settings.json"
    monkeypatch.setattr("head.cluster_settings.CLUSTER_SETTINGS", file)
    settings = read_settings()
    assert settings is not None
    assert [node.cpus for node in settings.largest] == [4, 2, 2, 2]
    assert settings.prices.worker > 0


@pytest.mark.slow
def test_the_units_of_the_heads_software_start_now_and_after_a_reboot(head: Machine) -> None:
    apply(head)
    (enabled,) = [call for call in head.called() if call.startswith("systemctl enable")]
    for path in UNITS.iterdir():
        assert (head.root / "etc/systemd/system" / path.name).exists()
        if "[Install]" in path.read_text():
            assert path.name in enabled.split()
    started = [call for call in head.called() if call.startswith("systemctl start")]
    assert set(HEAD_SOFTWARE_UNITS) < {unit for call in started for unit in call.split()}


@pytest.mark.slow
def test_a_new_head_has_its_software_before_the_first_submit(head: Machine) -> None:
    apply(head)
    wrapper = (FILES / "head/usr/local/lib/volley/volley-head").read_text()
    head.command("runuser", 'shift 3; exec "$@"')
    head.write("proc/sys/kernel/random/boot_id", "first")
    head.write("proc/uptime", "9 0")
    head.write("proc/1/stat", f"1 (systemd) S{' 0' * 20}")
    status = head.run(f"set -- status\n{wrapper}", {"VOLLEY_ROOT": str(head.root)})
    assert json.loads(status.stdout)["experiments"] == []


@pytest.mark.slow
def test_a_head_without_its_software_says_so(head: Machine) -> None:
    wrapper = (FILES / "head/usr/local/lib/volley/volley-head").read_text()
    done = head.run(f"set -- status\n{wrapper}")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"].startswith("the head has no software yet")


@pytest.mark.slow
def test_a_changed_queue_rule_restarts_no_training(
    head: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    apply(head)
    before = os.readlink(head.root / "usr/local/lib/volley/software")
    changed = shutil.copytree(PACKAGE, tmp_path_factory.mktemp("changed") / "head")
    with (changed / "queue/sharing.py").open("a") as file:
        file.write("NEW = 1\n")
    monkeypatch.setattr("infra.boot.head_wheel.PACKAGE", changed)
    head.calls.write_text("")
    done = apply(head)
    assert done.returncode == 0, done.stderr
    assert "systemctl reload experiments.service" in head.called()
    assert not [call for call in head.called() if "restart ray" in call]
    software = head.root / "usr/local/lib/volley/software"
    assert os.readlink(software) != before
    assert not Path(before).exists()
    assert (software / "head/queue/sharing.py").read_text().endswith("NEW = 1\n")


def test_the_software_is_sent_without_comments_and_docstrings() -> None:
    code = head_files()["head/queue/sharing.py"].decode()
    assert "def share(" in code
    assert "First come, first served" in (PACKAGE / "queue/sharing.py").read_text()
    assert "First come, first served" not in code
    assert "#" not in code


@pytest.mark.slow
def test_what_ray_imports_is_what_it_restarts_for() -> None:
    code = (
        "import head.autoscaler.scale_set_provider, sys;"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.partition('.')[0] == 'head'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    imported = {f"head/{Path(file).relative_to(PACKAGE)}" for file in done.stdout.split()}
    assert [name for name in imported if not name.startswith(IN_RAY)] == []
    assert [part for part in IN_RAY if not any(n.startswith(part) for n in imported)] == []


@pytest.mark.slow
def test_a_change_of_the_limits_does_not_start_ray_again(head: Machine) -> None:
    apply(head)
    head.calls.write_text("")
    assert apply(head, maxWorkers=9, idleMinutes=1).returncode == 0
    assert not [call for call in head.called() if "restart" in call]


@pytest.mark.slow
def test_a_new_provider_starts_ray_again(head: Machine) -> None:
    apply(head)
    head.write("usr/local/lib/volley/ray-restarts-with", "an older provider")
    assert apply(head).returncode == 0
    assert "systemctl restart ray-head.service" in head.called()


@pytest.mark.slow
def test_a_restart_of_ray_that_was_cut_off_is_made_by_the_next_run(head: Machine) -> None:
    head.command("systemctl", f"{SYSTEMCTL} && [[ $1 != restart ]]")
    assert apply(head).returncode != 0
    head.command("systemctl", SYSTEMCTL)
    head.calls.write_text("")
    assert apply(head).returncode == 0
    assert "systemctl restart ray-head.service" in head.called()


@pytest.mark.slow
def test_services_load_a_version_whose_installation_was_cut_off(head: Machine) -> None:
    head.command("systemctl", f"{SYSTEMCTL} && [[ $1 != daemon-reload ]]")
    assert apply(head).returncode != 0
    head.command("systemctl", SYSTEMCTL)
    restart = "systemctl restart scheduled-events.service identity.service"
    assert apply(head).returncode == 0
    assert restart in head.called()
    head.calls.write_text("")
    assert apply(head).returncode == 0
    assert restart not in head.called()
    # An installation of another version that ends before its last line.
    head.write("usr/local/lib/volley/running-version", "")
    assert apply(head).returncode == 0
    assert restart in head.called()


@pytest.mark.slow
def test_a_head_without_its_folder_is_an_error_with_the_reason(
    head: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.stack.head_software.TIMEOUT_S", 0)
    (head.root / "var/lib/volley").rmdir()
    done = apply(head)
    assert done.returncode == 1
    assert "cloud-init on the head has not created" in done.stderr


def test_what_a_run_command_has_printed_cannot_control_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[str] = []
    output = "\x1b]52;c;Y3VybA==\x07pong: it broke\x1b[2J"
    monkeypatch.setattr(run_command, "last_start", lambda *_: LastStart("", "Failed", output))
    monkeypatch.setattr("pulumi.log.error", shown.append)
    inputs = {"runCommandName": "training", "resourceGroupName": "group", "vmName": "head"}
    run_command.tell_reason(SimpleNamespace(new_inputs=inputs))  # type: ignore[arg-type]
    (text,) = shown
    assert "pong: it broke" in text
    assert "\x1b" not in text
