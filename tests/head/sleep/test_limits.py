"""maxHours and budget: first a warning, then sleep, even if experiments are training."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.free_port import free_port
from tests.head.sleep.sleeping_head import HOUR, SleepingHead
from tests.payload.command_line import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture
def training_head(head: SleepingHead) -> SleepingHead:
    head.experiment("pong", "TRAINING")
    return head


def run_after_spending(head: SleepingHead, so_far: float) -> None:
    head.run()
    head.change("cost.json", so_far=so_far, time=time.time())
    head.run()


def test_max_hours_warns_and_then_puts_a_training_to_sleep(training_head: SleepingHead) -> None:
    training_head.set(max_hours=10)
    training_head.set_up_for(7.9 * HOUR)
    training_head.run()
    assert training_head.sleep["warning"] == ""
    training_head.set_up_for(8.1 * HOUR)
    training_head.run()
    assert training_head.sleep["warning"] == "max_hours: 8.10 of 10 hours since the start"
    assert training_head.sleep["sleeps_at"] == pytest.approx(time.time() + 1.9 * HOUR, abs=30)
    assert not training_head.is_deallocated
    training_head.set_up_for(10 * HOUR)
    training_head.run()
    assert training_head.is_deallocated


def test_budget_warns_and_then_puts_a_training_to_sleep(training_head: SleepingHead) -> None:
    training_head.set(budget=20)
    run_after_spending(training_head, 15.9)
    assert training_head.sleep["warning"] == ""
    run_after_spending(training_head, 16.1)
    assert training_head.sleep["warning"] == "budget: 16.10 of 20 dollars"
    left_s = 3.9 / training_head.ask("status")["cost"]["per_hour"] * HOUR
    assert training_head.sleep["sleeps_at"] == pytest.approx(time.time() + left_s, abs=30)
    assert not training_head.is_deallocated
    run_after_spending(training_head, 20)
    assert training_head.is_deallocated


def test_after_a_boot_there_is_time_to_raise_the_budget(training_head: SleepingHead) -> None:
    training_head.set(budget=20)
    training_head.set_up_for(14 * 60)
    run_after_spending(training_head, 30)
    assert training_head.sleep["warning"] == "budget: 30.00 of 20 dollars"
    assert not training_head.is_deallocated
    training_head.set_up_for(16 * 60)
    training_head.run()
    assert training_head.is_deallocated


def test_a_limit_that_azure_refuses_is_tried_again(training_head: SleepingHead) -> None:
    training_head.set(max_hours=1)
    training_head.fault(forbidden=1)
    training_head.run()
    assert training_head.calls == []
    assert training_head.sleep["problem"]
    training_head.change("sleep.json", next_try=time.time() - 1)
    training_head.run()
    assert training_head.is_deallocated


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def mlflow_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A tracking server at the address that the head uses."""
    port = str(free_port())
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--workers", "1"),
        *("--host", "127.0.0.1", "--port", port),
        *("--backend-store-uri", f"sqlite:///{tmp_path}/server.db"),
        *("--artifacts-destination", str(tmp_path / "artifacts")),
    ]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (
        (tmp_path / "server.log").open("w") as log,
        subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True
        ) as server,
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
        try:
            wait_for(lambda: answers(int(port)))
            yield f"http://127.0.0.1:{port}"
        finally:
            os.killpg(server.pid, signal.SIGTERM)


def test_the_warning_is_a_tag_of_the_runs_that_train(
    training_head: SleepingHead, mlflow_server: str
) -> None:
    client = MlflowClient(mlflow_server)
    run = client.create_run("0").info.run_id
    training_head.write("experiments/pong/status.json", {"mlflow_run": run})
    training_head.set(max_hours=10)
    training_head.set_up_for(9 * HOUR)
    training_head.run()
    warning = "max_hours: 9.00 of 10 hours since the start"
    assert client.get_run(run).data.tags["volley.warning"] == warning


def test_an_mlflow_that_is_away_keeps_no_head_awake(
    training_head: SleepingHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    training_head.write("experiments/pong/status.json", {"mlflow_run": "a"})
    training_head.set(max_hours=1)
    training_head.run()
    assert training_head.is_deallocated
