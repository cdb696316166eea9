"""`volley-head sleep`, and the commands refused while the cluster goes to sleep."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from infra.boot.cloud_config import FILES
from tests.head.queue.queue_head import cartpole, sent
from tests.head.sleep.sleeping_head import SleepingHead
from tests.infra.boot.boot_scripts import Machine

pytestmark = pytest.mark.slow

VOLLEY_HEAD = (FILES / "head/usr/local/lib/volley/volley-head").read_text()


def test_a_head_that_is_asked_sleeps_at_once(head: SleepingHead) -> None:
    assert head.ask("sleep") == {"sleeps": True, "now": False}
    head.run()
    assert head.is_deallocated


def test_what_trains_is_named_and_not_interrupted(head: SleepingHead) -> None:
    head.experiment("pong", "TRAINING")
    head.experiment("breakout", "QUEUED")
    head.queue_sees(drivers=2)
    answer = head.ask("sleep")
    assert sorted(answer["error"].removeprefix("still running or queued: ").split(", ")) == [
        "2 Ray jobs of other programs",
        "breakout",
        "pong",
    ]
    assert answer["next"] == "volley sleep --now"
    head.run()
    assert head.calls == []


def test_a_kernel_is_named_too(head: SleepingHead) -> None:
    with head.jupyter(kernels=1):
        answer = head.ask("sleep")
    assert answer["error"] == "still running or queued: 1 JupyterLab kernel"


def test_jupyterlab_is_not_opened_on_a_head_that_goes_to_sleep(head: SleepingHead) -> None:
    assert head.ask("jupyter") == {"port": None, "token": None}
    with head.jupyter(kernels=0):
        assert head.ask("jupyter") == {"port": 8888, "token": "secret"}
        head.run()
        head.change("sleep.json", going=True)
        answer = head.ask("jupyter")
    assert answer == {"error": "the cluster is going to sleep", "next": "volley start"}


def test_now_interrupts_what_trains(head: SleepingHead) -> None:
    head.experiment("pong", "TRAINING")
    head.ask("sleep", "--now")
    head.run()
    assert head.is_deallocated


def test_a_request_does_not_interrupt_what_was_submitted_since(head: SleepingHead) -> None:
    head.ask("sleep")
    head.experiment("pong", "QUEUED")
    head.run()
    (head.home / "experiments/pong/state.json").unlink()
    head.run()
    assert head.calls == []


def test_a_request_of_an_earlier_boot_is_forgotten(head: SleepingHead) -> None:
    head.ask("sleep", "--now")
    head.boot("second")
    head.run()
    assert head.calls == []


def test_a_request_that_azure_refuses_is_tried_again_and_a_new_one_at_once(
    head: SleepingHead,
) -> None:
    head.fault(forbidden=2)
    head.ask("sleep", "--now")
    head.run()
    head.run()
    assert head.sleep["next_try"] > time.time() + 30
    head.ask("sleep", "--now")
    head.run()
    assert head.sleep["next_try"] > time.time() + 90
    head.ask("sleep", "--now")
    head.run()
    assert head.is_deallocated


def test_a_cluster_that_azure_scales_does_not_sleep(head: SleepingHead) -> None:
    head.set(scaling="cpu")
    answer = head.ask("sleep", "--now")
    assert answer["error"] == "a cluster with scaling: cpu never sleeps"


def test_a_head_without_settings_says_so(head: SleepingHead) -> None:
    head.settings.unlink()
    assert "settings have not arrived" in head.ask("sleep")["error"]
    assert head.run() == ""


def test_nothing_is_submitted_or_resumed_while_it_goes_to_sleep(head: SleepingHead) -> None:
    head.experiment("pong", "STOPPED")
    head.run_when_idle_for(31)
    refused = {"error": "the cluster is going to sleep", "next": "volley start"}
    assert head.ask("resume", "pong") == refused
    assert head.ask("submit", "breakout", stdin=sent(cartpole())) == refused
    head.boot("second")
    assert head.ask("resume", "pong")["state"] == "QUEUED"


def test_the_command_starts_the_service(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "usr/local/lib/volley/software").mkdir(parents=True)
    machine.command("runuser", "")
    machine.command("systemctl", "exit 5")  # The service does not exist yet.
    assert machine.run(VOLLEY_HEAD.replace('"$@"', "sleep --now").replace("${1-}", "sleep"))
    assert machine.called()[-1] == "systemctl start --no-block cluster-sleep.service"


def test_a_refused_command_does_not(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "usr/local/lib/volley/software").mkdir(parents=True)
    machine.command("runuser", "exit 2")
    done = machine.run(VOLLEY_HEAD.replace('"$@"', "sleep").replace("${1-}", "sleep"))
    assert (done.returncode, len(machine.called())) == (2, 1)
