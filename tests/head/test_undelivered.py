"""The head delivers to MLflow what its ended experiments could not, with their own payload."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow import MlflowClient

import payload
from payload.run.run_folder import RunFolder
from payload.tracking.mlflow_experiment import EXPERIMENT_NAME
from payload.tracking.outbox import MetricPoint, Outbox
from tests.head.installed_head import InstalledHead

pytestmark = pytest.mark.slow


def test_an_experiment_that_ended_while_mlflow_was_away_ends_there_too(tmp_path: Path) -> None:
    head, server = InstalledHead(tmp_path / "root"), f"sqlite:///{tmp_path}/elsewhere.db"
    for name in ("pong", "other"):
        add_ended(head, name)
    (head.experiments / "pong/payload").symlink_to(Path(payload.__file__).parent)
    run = RunFolder(head.home / "runs/pong-1234/runs/first")
    ended_ms = write_undelivered(run, server)
    # The other one has nothing to deliver, and not even a payload.
    assert deliver(head).splitlines()[-1] == f"MLflow has received the rest of {run.path}"
    client = MlflowClient(server)
    experiment_of_all = client.get_experiment_by_name(EXPERIMENT_NAME)
    assert experiment_of_all is not None
    (tracked,) = client.search_runs([experiment_of_all.experiment_id])
    assert (tracked.info.status, tracked.info.end_time) == ("FINISHED", ended_ms)
    assert tracked.data.metrics == {"entropy": 1.5}
    assert not run.undelivered_file.exists()
    status = json.loads((head.experiments / "pong/status.json").read_text())
    assert (status["mlflow_run"], status["state"]) == (tracked.info.run_id, "FINISHED")


def test_what_mlflow_lacks_of_earlier_content_of_a_name_is_delivered_too(tmp_path: Path) -> None:
    head, server = InstalledHead(tmp_path / "root"), f"sqlite:///{tmp_path}/elsewhere.db"
    add_ended(head, "pong")
    (head.experiments / "pong/payload").symlink_to(Path(payload.__file__).parent)
    status = (head.experiments / "pong/status.json").read_text()
    run = RunFolder(head.home / "runs/pong-5678/runs/first")
    write_undelivered(run, server)
    gone = RunFolder(head.home / "runs/removed-5678/runs/first")
    write_undelivered(gone, server)
    deliver(head)
    assert not run.undelivered_file.exists()
    assert gone.undelivered_file.exists()
    assert (head.experiments / "pong/status.json").read_text() == status


def add_ended(head: InstalledHead, name: str) -> None:
    """Adds an experiment that has ended with the key NAME-1234."""
    experiment = head.experiments / name
    experiment.mkdir()
    state = {"name": name, "state": "FINISHED", "key": f"{name}-1234"}
    (experiment / "state.json").write_text(json.dumps(state))
    ended = {"state": "FINISHED", "run": str(head.home / f"runs/{name}-1234/runs/first")}
    (experiment / "status.json").write_text(json.dumps({**ended, "mlflow_run": None}))


def write_undelivered(run: RunFolder, server: str) -> int:
    """Writes what MLflow lacks of a run; returns the run's end, in milliseconds."""
    run.path.mkdir(parents=True)
    outbox = Outbox()
    outbox.points.append(MetricPoint("entropy", 1.5, 1000, 12345))
    ended_ms = outbox.started_ms + 5000
    outbox.end = "FINISHED", ended_ms
    outbox.write(run.undelivered_file, server)
    return ended_ms


def deliver(head: InstalledHead) -> str:
    """Runs what the timer starts; returns its output."""
    command = [sys.executable, "-m", "head.undelivered"]
    environment = {**os.environ, **head.environment}
    out = subprocess.PIPE
    done = subprocess.run(command, env=environment, stdout=out, text=True, check=True)
    return done.stdout
