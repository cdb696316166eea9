"""The run command: the real script, on a head whose systemd and cloud-init are small scripts."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from infra.experiment_files import ExperimentFiles
from infra.training import run_command_script
from tests.infra.boot_scripts import Machine

pytestmark = pytest.mark.slow

CLOUD_INIT = """\
[[ $2 == --wait ]] || echo "status: $(cat cloud-init)"
exit "$(cat cloud-init-code)"
"""
SYSTEMCTL = """\
unit=${@: -1} state=active
[[ ! -e units/$unit ]] || state=$(cat "units/$unit")
case "$*" in
  *is-active*) [[ $1 == --quiet ]] || echo "$state"; [[ $state == active ]] ;;
  *is-failed*) [[ $state == failed ]] ;;
  stop* | restart*) [[ ! -e at-stop ]] || bash at-stop ;;
  "start training.service") [[ ! -e at-start ]] || bash at-start ;;
  "start sync-results"*) [[ $state != failed ]] ;;
esac
"""
JOURNALCTL = """\
unit=$2
journal=journal/${unit%.service}
[[ ! -e $journal ]] || exec cat "$journal"
"""


class Head(Machine):
    """A head on which all goes well."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.command("cloud-init", CLOUD_INIT)
        self.command("systemctl", SYSTEMCTL)
        self.command("journalctl", JOURNALCTL)
        self.command("runuser", "echo 1")
        # The user `ray` is a machine's.
        self.command("chown", "")
        self.cloud_init("done", 0)
        self.training_becomes("TRAINING")
        python = self.root / "opt/volley/venv/bin/python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)

    def training_becomes(self, state: str) -> None:
        """What the payload writes once it has been started."""
        status = json.dumps({"state": state, "run": "runs/one", "reason": ""})
        self.write("at-start", f"echo '{status}' > opt/volley/training/status.json")

    def cloud_init(self, status: str, code: int) -> None:
        self.write("cloud-init", f"{status}\n")
        self.write("cloud-init-code", str(code))

    def start_training(
        self, timeout_s: int = 30, needs_gpu: bool = False
    ) -> subprocess.CompletedProcess[str]:
        wheel = io.BytesIO()
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("payload/__init__.py", "")
        content = ("payload-1.whl", wheel.getvalue())
        script = run_command_script(
            *(content, ExperimentFiles(b"run: IMPALA\n", b""), {}),
            min_nodes=1,
            needs_gpu=needs_gpu,
            settle_s=0,
            timeout_s=timeout_s,
        )
        return self.run(script)


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path)


def test_a_training_is_started(head: Head) -> None:
    done = head.start_training()
    assert done.returncode == 0, done.stderr
    assert (head.root / "opt/volley/training/experiment.yaml").read_text() == "run: IMPALA\n"
    assert (head.root / "opt/volley/training/payload/__init__.py").exists()
    assert "systemctl start training.service" in head.called()


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch finds a GPU")
@pytest.mark.parametrize(
    ("driver", "told"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  560.35.03", "driver is 560.35.03"),
        ("", "driver is not loaded"),
    ],
)
def test_a_gpu_that_torch_cannot_use_is_told_before_the_cluster_is_waited_for(
    head: Head, driver: str, told: str
) -> None:
    python = head.root / "opt/volley/venv/bin/python"
    python.unlink()
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    if driver:
        head.write("proc/driver/nvidia/version", driver)
    done = head.start_training(needs_gpu=True)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert told in last
    assert f"torch {torch.__version__} is built for CUDA" in last
    assert "microsoft-dsvm:ubuntu-hpc:2204:latest" in last
    assert "systemctl --quiet is-active ray-head.service" not in head.called()


def test_an_error_of_cloud_init_is_told_with_its_reason(head: Head) -> None:
    head.cloud_init("error", 1)
    head.write("var/log/cloud-init-output.log", "E: Unable to locate package nosuch\n")
    done = head.start_training()
    assert done.returncode == 1
    assert "E: Unable to locate package nosuch" in done.stderr
    assert "volley: cloud-init on the head ended with 'error'" in done.stderr.splitlines()[-1]


def test_a_warning_of_cloud_init_stops_nothing(head: Head) -> None:
    head.cloud_init("done", 2)
    assert head.start_training().returncode == 0


def test_a_python_environment_that_failed_for_good_is_told_at_once(head: Head) -> None:
    head.write("units/python-environment.service", "failed")
    head.write("units/ray-head.service", "inactive")
    head.write("journal/python-environment", "pipPackages: nosuch was not found\n")
    head.write("journal/ray-head", "what Ray says does not matter\n")
    done = head.start_training()
    assert done.returncode == 1
    assert done.stderr.startswith("pipPackages: nosuch was not found")
    assert "volley: python-environment.service did not start" in done.stderr
    assert "does not matter" not in done.stderr


def test_a_python_environment_that_is_not_ready_in_time_shows_its_journal(head: Head) -> None:
    head.write("units/python-environment.service", "activating")
    head.write("journal/python-environment", "Failed to fetch: https://index.example/simple/\n")
    done = head.start_training(timeout_s=1)
    assert done.returncode == 1
    assert "Failed to fetch" in done.stderr


def test_a_training_that_is_over_already_has_started(head: Head) -> None:
    head.training_becomes("FINISHED")
    assert head.start_training(timeout_s=4).returncode == 0


def test_a_training_without_a_learner_update_in_time_is_told(head: Head) -> None:
    head.training_becomes("STARTING")
    done = head.start_training(timeout_s=3)
    assert done.returncode == 1
    assert done.stderr.endswith("volley: no learner update within 3 s\n")


def test_a_new_training_knows_nothing_of_the_one_before(head: Head) -> None:
    for path in ("opt/volley/training/finished", "opt/volley/training/old", "var/lib/volley/cpus"):
        head.write(path, "")
    assert head.start_training().returncode == 0
    assert sorted(p.name for p in (head.root / "opt/volley/training").iterdir()) == [
        "experiment.yaml",
        "payload",
        "stack.yaml",
        "status.json",
    ]
    assert not (head.root / "var/lib/volley/cpus").exists()


def test_a_training_that_ends_as_it_is_replaced_does_not_keep_the_new_one(head: Head) -> None:
    head.write("opt/volley/training/old", "")
    head.write("at-stop", "touch opt/volley/training/finished")
    assert head.start_training().returncode == 0
    assert not (head.root / "opt/volley/training/finished").exists()


def test_a_training_is_started_however_often_the_last_one_failed(head: Head) -> None:
    assert head.start_training().returncode == 0
    calls = [call for call in head.called() if call.endswith("training.service")]
    assert calls.index("systemctl reset-failed training.service") < calls.index(
        "systemctl start training.service"
    )


def test_the_training_may_write_into_its_folder(head: Head) -> None:
    assert head.start_training().returncode == 0
    assert f"chown ray {head.root}/opt/volley/training" in head.called()


def test_an_mlflow_that_does_not_start_is_told(head: Head) -> None:
    head.write("units/mlflow.service", "failed")
    assert "mlflow.service did not start" in head.start_training().stderr


def test_an_mlflow_elsewhere_is_not_waited_for(head: Head) -> None:
    head.write("units/mlflow.service", "inactive")
    head.write("etc/volley/mlflow-elsewhere", "")
    assert head.start_training().returncode == 0


@pytest.mark.parametrize(
    ("unit", "cause", "told"),
    [
        (
            "training",
            "payload: env: Pung: no such Gymnasium environment",
            "the training did not start",
        ),
        ("sync-results", "two clusters share the account", "the results cannot be saved"),
    ],
)
def test_what_fails_shows_its_journal_and_says_so_last(
    head: Head, unit: str, cause: str, told: str
) -> None:
    head.training_becomes("STARTING" if unit == "training" else "TRAINING")
    head.write(f"units/{unit}.service", "failed")
    head.write(f"journal/{unit}", f"{cause}\n")
    done = head.start_training()
    assert done.returncode == 1
    assert cause in done.stderr
    assert done.stderr.endswith(f"volley: {told} (journalctl -u {unit})\n")


def test_a_start_whose_up_was_killed_is_ended_by_the_next(head: Head) -> None:
    head.training_becomes("STARTING")
    with ThreadPoolExecutor() as threads:
        earlier = threads.submit(head.start_training, timeout_s=20)
        while "systemctl start training.service" not in head.called() and earlier.running():
            time.sleep(0.05)
        head.training_becomes("TRAINING")
        later = head.start_training()
    assert later.returncode == 0, later.stderr
    assert "an earlier start is still running: ending it" in later.stdout
    assert earlier.result().returncode == -signal.SIGTERM
