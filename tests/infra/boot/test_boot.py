"""A machine's boot files: each real, rendered file passes the checker of its own tool."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from infra import ports
from infra.boot.cloud_config import (
    FILES,
    MAX_CUSTOM_DATA,
    UNITS,
    CustomDataTooLargeError,
    Role,
    cloud_config,
)
from infra.config.read_stack import read_settings
from infra.config.stack_settings import StackSettings
from infra.stack import payload_code
from infra.stack.head_software import install_script
from infra.stack.machine_environment import check_custom_data
from infra.stack.run_command import FIRST_LINES
from infra.stack.run_command_script import MAX_BYTES, ScriptTooLargeError
from infra.stack.training import run_command_script, training_script
from payload.archive import Archive
from payload.parcel import ExperimentFiles, payload_archive
from tests.infra.boot.machine_tree import ROLES, machine
from tests.infra.declared_stack import REQUIRED, Declared
from tests.project import ROOT

Stack = Callable[[str], Declared]
MAX_OWN_CUSTOM_DATA = 40_000
"""Bytes of the head's customData without a user's packages and variables."""
SHELLCHECK = Path(sys.executable).parent / "shellcheck"


def run(*command: str | Path) -> None:
    """Runs a checker; its output explains a failure."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# Each file by its own tool


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("cloud-init"), reason="cloud-init is not installed")
@pytest.mark.parametrize("name", ["dev", "everything set"])
def test_cloud_init_accepts_the_custom_data(
    stack: Stack, name: str, role: Role, tmp_path: Path
) -> None:
    path = tmp_path / "user-data"
    path.write_text(stack(name).custom_data(role))
    run("cloud-init", "schema", "--config-file", path)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_accepts_the_units(tree: Path) -> None:
    # systemd-analyze requires the units' commands to exist.
    for name in ("python", "ray", "mlflow"):
        program = tree / "opt/volley/venv/bin" / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch(0o755)
    files = [path for path in (tree / "etc/systemd/system").rglob("*") if path.is_file()]
    for folder in ("etc/volley/", "opt/volley/", "usr/local/lib/volley/"):
        for file in files:
            file.write_text(re.sub(rf"([-=+! ])/{folder}", rf"\1{tree}/{folder}", file.read_text()))
    units = [path for path in files if path.suffix != ".conf"]
    run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *units)


@pytest.mark.slow
def test_shellcheck_accepts_the_scripts(tree: Path) -> None:
    scripts = [
        path
        for path in (tree / "usr/local/lib/volley").iterdir()
        if path.read_text().startswith("#!/bin/bash")
    ]
    assert scripts
    run(SHELLCHECK, *scripts)


@pytest.mark.slow
def test_shellcheck_accepts_the_run_commands(tmp_path: Path) -> None:
    script = tmp_path / "script.sh"
    sent = run_command_script("pong", b"payload", ExperimentFiles(b"run: IMPALA"), {}, 1, 900)
    settings = StackSettings.model_validate(REQUIRED)
    installs = install_script(settings, "/workers", "/head", "10.0.0.4", "/lease")
    for text in (sent, installs, *payload_code.install_scripts(b"payload")):
        script.write_text(FIRST_LINES.format(time="now") + text)
        run(SHELLCHECK, script)


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
def test_azures_agent_polls_every_six_seconds_from_its_start(role: Role, tmp_path: Path) -> None:
    config = yaml.safe_load(cloud_config(machine(role)))
    (command,) = config["bootcmd"]
    conf = tmp_path / "waagent.conf"
    here = ["sh", "-c", command.replace("/etc/waagent.conf", str(conf))]
    subprocess.run(here, check=True)  # Another image has no agent.
    conf.write_text("Provisioning.Agent=auto\nExtensions.GoalStatePeriod=300\n")
    subprocess.run(here, check=True)
    assert conf.read_text() == "Provisioning.Agent=auto\nExtensions.GoalStatePeriod=6\n"
    assert "walinuxagent" not in str(config["runcmd"])


@pytest.mark.parametrize("role", ROLES)
def test_every_unit_that_is_started_is_there(tree: Path, role: Role) -> None:
    for unit in UNITS[role]:
        assert (tree / "etc/systemd/system" / unit).is_file()


def test_scripts_may_be_run(tree: Path) -> None:
    for path in (tree / "usr/local/lib/volley").iterdir():
        assert bool(path.stat().st_mode & 0o100) == path.read_text().startswith("#!")


def test_only_a_stack_with_containers_pays_for_them(role: Role) -> None:
    without, with_containers = (
        cloud_config(machine(role, containers=value)) for value in (False, True)
    )
    assert "umoci" not in without
    assert "umoci" in with_containers
    assert "60-containers.conf" in with_containers
    assert "registry-login.timer" not in str(yaml.safe_load(with_containers)["runcmd"])
    logged_in = cloud_config(machine(role, containers=True, container_registry="i.azurecr.io"))
    assert "registry-login.timer" in str(yaml.safe_load(logged_in)["runcmd"])


# customData


def test_custom_data_fits(any_stack: Declared, role: Role) -> None:
    assert len(any_stack.custom_data(role).encode()) <= MAX_CUSTOM_DATA


def test_the_heads_custom_data_has_room_for_packages_and_variables() -> None:
    assert len(cloud_config(machine()).encode()) <= MAX_OWN_CUSTOM_DATA


def test_custom_data_that_does_not_fit_is_refused() -> None:
    packages = [f"package-number-{i}" for i in range(5000)]
    with pytest.raises(CustomDataTooLargeError, match="pipPackages"):
        cloud_config(machine(pip_packages=packages))


@pytest.mark.parametrize("key", ["pipPackages", "aptPackages"])
def test_packages_that_do_not_fit_are_refused_before_anything_is_made(key: str) -> None:
    packages = json.dumps([f"package-number-{i}" for i in range(5000)])
    with pytest.raises(CustomDataTooLargeError, match=key):
        check_custom_data(read_settings({**REQUIRED, key: packages}, ROOT))


def test_an_experiment_that_does_not_fit_is_refused_by_its_name(tmp_path: Path) -> None:
    settings = read_settings(REQUIRED, ROOT)
    path = tmp_path / "large.yaml"
    path.write_text("run: IMPALA  # " + random.Random(0).randbytes(MAX_BYTES).hex())
    with pytest.raises(ScriptTooLargeError, match=rf"experiment: {path}: makes a run command of"):
        training_script(settings.model_copy(update={"experiment": str(path)}), ROOT)


def test_the_same_machine_gives_the_same_bytes(role: Role) -> None:
    assert cloud_config(machine(role)) == cloud_config(machine(role))


@pytest.mark.parametrize(
    "left", ["__pycache__/blob.cpython-311.pyc", ".DS_Store", ".volley-head.swp"]
)
def test_what_python_the_finder_and_editors_leave_is_not_a_boot_file(
    left: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = shutil.copytree(FILES, tmp_path / "files")
    before = cloud_config(machine())
    path = files / "head/usr/local/lib/volley" / left
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\xa7\r\r\n")
    monkeypatch.setattr("infra.boot.cloud_config.FILES", files)
    assert cloud_config(machine()) == before


def test_custom_data_is_one_document_that_a_person_can_read(role: Role) -> None:
    text = cloud_config(machine(role))
    assert text.startswith("#cloud-config\n")
    assert "\n    ExecStart=" in text


@pytest.mark.slow
@pytest.mark.parametrize("value", ["plain", "a b", 'a "b"', "a'b", "$HOME", "a\\b"])
def test_a_variable_arrives_as_it_was_given(tmp_path: Path, value: str) -> None:
    config = yaml.safe_load(cloud_config(machine(environment_variables={"X": value})))
    (file,) = [f for f in config["write_files"] if f["path"] == "/etc/volley/user.env"]
    env = tmp_path / "user.env"
    env.write_text(file["content"])
    # systemd parses quotes in an EnvironmentFile as the shell does.
    done = subprocess.run(
        ["bash", "-c", f'. {env}; printf %s "$X"'], capture_output=True, text=True, check=True
    )
    assert done.stdout == value


# Ray's flags


@pytest.mark.parametrize("role", ROLES)
def test_every_port_of_ray_comes_from_ray_ports(stack: Stack, role: Role) -> None:
    (flags,) = re.findall(r"RAY_START_FLAGS='([^']*)'", stack("dev").custom_data(role))
    expected = ports.head_flags if role == "head" else ports.worker_flags
    assert flags.split() == expected("10.42.0.4")


def test_no_script_names_a_port_of_ray(tree: Path) -> None:
    for path in (tree / "usr/local/lib/volley").iterdir():
        assert not re.search(r"\b(6379|8076|8077|10100)\b", path.read_text()), path


# The run command


def test_the_payload_is_the_same_whenever_it_is_packed() -> None:
    assert payload_archive() == payload_archive()


@pytest.mark.slow
def test_the_run_command_unpacks_what_it_was_given(tmp_path: Path) -> None:
    files, experiment = Archive({"a": bytes(range(256)) * 100}), b"run: IMPALA\n"
    script = run_command_script("pong", b"", ExperimentFiles(experiment, files), {}, 1, 900)
    unpacking, _, _ = script.partition("# Runs on the head")
    show = f'{unpacking}cp "$incoming"/* {tmp_path}\n'
    subprocess.run(["bash", "-c", show], check=True)
    assert (tmp_path / "files.tar").read_bytes() == files.content()
    assert (tmp_path / "experiment.yaml").read_bytes() == experiment
