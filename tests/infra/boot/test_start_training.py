"""The run command: the real script, on a head with stubs of systemd and cloud-init."""

from __future__ import annotations

import bz2
import json
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from head.queue.record import Record
from head.queue.store import Store
from infra.stack.payload_code import install_scripts
from infra.stack.training import run_command_script
from payload.parcel import ExperimentFiles
from tests.head.installed_head import InstalledHead
from tests.head.queue.queue_head import payload
from tests.infra.boot.boot_scripts import Machine

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
  *reset-failed*) [[ ! -e tried-again/$unit ]] || cp "tried-again/$unit" "units/$unit" ;;
  "start sync-results"*) [[ $state != failed ]] ;;
esac
"""
JOURNALCTL = """\
unit=$2
journal=journal/${unit%.service}
[[ ! -e $journal ]] || exec cat "$journal"
"""


RUNUSER = """\
[[ $4 == env && $* != *head.command* ]] || exec "${@:4}"
echo 1
"""
"""Runs the head's command; prints 1 where the script asks for the number of nodes."""


class Head(Machine):
    """A head without faults, on which a thread plays the queue."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.command("cloud-init", CLOUD_INIT)
        self.command("systemctl", SYSTEMCTL)
        self.command("journalctl", JOURNALCTL)
        self.command("runuser", RUNUSER)
        self.cloud_init("done", 0)
        self._environment = InstalledHead(root).environment
        self.store = Store(root / "var/lib/volley/experiments")
        self.training_becomes(state="TRAINING")

    def training_becomes(self, **changes: Any) -> None:
        """Sets the changes that the queue makes to each experiment it finds."""
        self.becomes = changes

    @contextmanager
    def queue(self) -> Iterator[None]:
        over = threading.Event()

        def play() -> None:
            while not over.wait(0.05):
                for record in self.store.records():
                    if record.state == "QUEUED" and not record.reason:
                        self.store.change(record, **self.becomes)
                    if record.wish:
                        self.store.change(record, state="STOPPED")
                        self.store.place_next(record.name)

        with ThreadPoolExecutor() as threads:
            played = threads.submit(play)
            try:
                yield
            finally:
                over.set()
                played.result()

    def cloud_init(self, status: str, code: int) -> None:
        self.write("cloud-init", f"{status}\n")
        self.write("cloud-init-code", str(code))

    def start_training(
        self, timeout_s: int = 30, needs_gpu: bool = False, experiment: bytes = b"run: IMPALA\n"
    ) -> subprocess.CompletedProcess[str]:
        script = run_command_script(
            *("pong", payload(), ExperimentFiles(experiment), {}),
            min_nodes=1,
            needs_gpu=needs_gpu,
            timeout_s=timeout_s,
        )
        for part in install_scripts(payload()):
            sent = self.run(part)
            assert sent.returncode == 0, sent.stderr
        with self.queue():
            return self.run(script, self._environment)


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path)


def test_a_training_is_started(head: Head) -> None:
    done = head.start_training()
    assert done.returncode == 0, done.stderr
    folder = head.root / "var/lib/volley/experiments/pong"
    assert (folder / "experiment.yaml").read_text() == "run: IMPALA\n"
    assert (folder / "payload/__init__.py").exists()
    assert done.stdout.endswith("pong: TRAINING\n")


def test_the_head_keeps_the_payload_that_was_sent_last(head: Head) -> None:
    for sent in (b"first", b"second", random.Random(0).randbytes(100_000)):
        for part in install_scripts(sent):
            assert head.run(part).returncode == 0
    kept = sorted((head.root / "usr/local/lib/volley/payloads").iterdir())
    assert [path.suffix for path in kept] == [".1", ".2"]
    assert bz2.decompress(b"".join(path.read_bytes() for path in kept)) == sent


def test_a_payload_that_is_not_whole_starts_nothing(head: Head) -> None:
    first, *_ = install_scripts(payload())
    assert head.run(first).returncode == 0
    with head.queue():
        script = run_command_script(
            *("pong", payload(), ExperimentFiles(b"run: IMPALA\n"), {}), 1, 30
        )
        done = head.run(script, head._environment)
    assert done.returncode == 1
    assert "the payload on the head is incomplete: " in done.stderr


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


def test_packages_whose_mirror_was_away_at_boot_are_tried_again(head: Head) -> None:
    for unit in ("apt-packages.service", "python-environment.service"):
        head.write(f"units/{unit}", "failed")
        head.write(f"tried-again/{unit}", "active")
    done = head.start_training()
    assert done.returncode == 0, done.stderr
    assert "systemctl start --no-block python-environment.service" in head.called()


def test_a_python_environment_that_is_not_ready_in_time_shows_its_journal(head: Head) -> None:
    head.write("units/python-environment.service", "activating")
    head.write("journal/python-environment", "Failed to fetch: https://index.example/simple/\n")
    done = head.start_training(timeout_s=1)
    assert done.returncode == 1
    assert "Failed to fetch" in done.stderr


def test_a_training_that_is_over_already_has_started(head: Head) -> None:
    head.training_becomes(state="FINISHED")
    assert head.start_training(timeout_s=4).returncode == 0


def test_a_training_without_a_learner_update_in_time_is_told(head: Head) -> None:
    head.training_becomes(state="STARTING")
    done = head.start_training(timeout_s=3)
    assert done.returncode == 1
    assert done.stderr.endswith("volley: no learner update within 3 s\n")


def test_workers_that_azure_has_not_made_are_told_beside_the_training(head: Head) -> None:
    known = {"wanted": 4, "missing": 3, "why": "AllocationFailed: no Spot machines", "problem": ""}
    head.write("var/lib/volley/cluster-workers.json", json.dumps(known))
    done = head.start_training()
    assert done.returncode == 0
    told = "pong: TRAINING\n3 of 4 workers are missing: AllocationFailed: no Spot machines\n"
    assert done.stdout.endswith(told)


def test_a_training_that_runs_already_is_left_alone(head: Head) -> None:
    assert head.start_training().returncode == 0
    before = head.store.get("pong")
    assert head.start_training().returncode == 0
    assert head.store.get("pong") == before


def test_a_changed_experiment_replaces_the_one_that_trains(head: Head) -> None:
    assert head.start_training().returncode == 0
    before = head.store.get("pong")
    assert head.start_training(experiment=b"run: APPO\n").returncode == 0
    after = head.store.get("pong")
    assert (after.state, after.order) == ("TRAINING", before.order)
    assert after.key != before.key


def test_a_training_that_waits_for_others_says_its_place_and_has_not_failed(head: Head) -> None:
    head.training_becomes(reason="no room beside other")
    other = head.root / "var/lib/volley/experiments/other"
    other.mkdir()
    Record("other", "TRAINING").write(other)
    done = head.start_training()
    assert done.returncode == 0, done.stderr
    assert "pong is queued, position 1, behind other; it starts when there is room" in done.stdout
    assert head.store.get("other").wish == ""


def test_a_training_without_room_that_waits_for_nobody_is_told(head: Head) -> None:
    head.training_becomes(reason="no room on the nodes")
    done = head.start_training(timeout_s=3)
    assert done.returncode == 1
    assert done.stderr.endswith("volley: no learner update within 3 s: no room on the nodes\n")


def test_a_training_that_has_failed_is_tried_at_once(head: Head) -> None:
    head.training_becomes(state="STARTING", reason="it broke", not_before=time.time() + 900)
    done = head.start_training()
    assert done.returncode == 1
    assert "pong: it broke\n" in done.stderr
    assert done.stderr.endswith("volley: the training did not start (journalctl -u experiments)\n")
    assert head.start_training(timeout_s=3).returncode == 1
    assert head.store.get("pong").not_before == 0


def test_an_experiment_that_the_payload_refuses_is_told(head: Head) -> None:
    done = head.start_training(experiment=b"config: {num_wrokers: 3}\n")
    assert done.returncode == 1
    assert "payload: config.num_wrokers" in done.stderr
    assert done.stderr.endswith("volley: the training did not start (journalctl -u experiments)\n")


def test_what_a_failed_experiment_has_written_is_shown(head: Head) -> None:
    head.training_becomes(state="FAILED", reason="the environment is broken")
    written = head.store.folder("pong") / "output.log"
    change = head.store.change

    def write_and_change(record: Any, **changes: Any) -> Any:
        written.write_text("of the environment: a traceback\n")
        return change(record, **changes)

    head.store.change = write_and_change  # type: ignore[method-assign]
    done = head.start_training()
    assert done.returncode == 1
    assert "of the environment: a traceback\npong: the environment is broken\n" in done.stderr


def test_an_mlflow_that_does_not_start_is_told(head: Head) -> None:
    head.write("units/mlflow.service", "failed")
    assert "mlflow.service did not start" in head.start_training().stderr


def test_an_mlflow_elsewhere_is_not_waited_for(head: Head) -> None:
    head.write("units/mlflow.service", "inactive")
    head.write("etc/volley/mlflow-elsewhere", "")
    assert head.start_training().returncode == 0


def test_results_that_cannot_be_saved_show_the_reason_and_are_told_last(head: Head) -> None:
    head.write("units/sync-results.service", "failed")
    head.write("journal/sync-results", "two clusters share the account\n")
    done = head.start_training()
    assert done.returncode == 1
    assert "two clusters share the account" in done.stderr
    assert done.stderr.endswith(
        "volley: the results cannot be saved (journalctl -u sync-results)\n"
    )


def test_a_start_whose_up_was_killed_is_ended_by_the_next(head: Head) -> None:
    head.training_becomes(state="STARTING")
    with ThreadPoolExecutor() as threads:
        earlier = threads.submit(head.start_training, timeout_s=20)
        while not head.store.records() and earlier.running():
            time.sleep(0.05)
        later = threads.submit(head.start_training)
        assert earlier.result().returncode == -signal.SIGTERM
        (record,) = head.store.records()
        head.store.change(record, state="TRAINING")
        assert later.result().returncode == 0, later.result().stderr
    assert "an earlier start is still running: ending it" in later.result().stdout


def test_a_corrected_experiment_does_not_wait_for_the_start_whose_up_was_killed(head: Head) -> None:
    head.training_becomes(state="STARTING")
    with ThreadPoolExecutor() as threads:
        earlier = threads.submit(head.start_training, timeout_s=50)
        # It waits for the training.
        while not any(" wait pong" in call for call in head.called()) and earlier.running():
            time.sleep(0.05)
        head.training_becomes(state="TRAINING")
        began = time.monotonic()
        later = head.start_training(timeout_s=25, experiment=b"run: APPO\n")
        assert earlier.result().returncode != 0
    assert later.returncode == 0, later.stderr
    assert time.monotonic() - began < 25
