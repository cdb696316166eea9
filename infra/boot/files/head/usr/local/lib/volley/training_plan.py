"""What run_training.py runs: the run that continues or a new one, and with how many env runners."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

TRAINING = Path("/opt/volley/training")
"""Payload, experiment and the stack's layer over it; a run command replaces all of them."""
STATUS = TRAINING / "status.json"
"""Where the payload writes its state: see RunStatus in payload/run/run_status.py."""
sys.path.insert(0, str(TRAINING))

if TYPE_CHECKING:
    from payload.experiment import Node, Settings


def read_settings(training: Path) -> Settings:
    """Reads the experiment and the stack's layer over it, as the payload does.

    Raises:
        UserError: The payload refuses it.
    """
    from payload.experiment import read_experiment

    return read_experiment(training / "experiment.yaml", training / "stack.yaml").experiment.config


def env_runners(settings: Settings, nodes: Sequence[Node]) -> tuple[int, str]:
    """Returns the number of env runners for the payload, and the reason.

    The preview has refused what does not fit on the whole cluster. What is there now may be less:
    a training starts with the workers that came, and continues with those that are left.

    Raises:
        UserError: There is no room for the learners.
    """
    from payload.experiment import Cluster, place

    cluster = Cluster(nodes)
    number = place(settings, cluster, shrink=True)
    asked = settings.num_env_runners
    if asked is None:
        return number, f"{number} env runners: {cluster.cpus} CPUs, one of them for the driver"
    if asked > number:
        return number, f"{number} env runners: {asked} do not fit the {cluster.cpus} CPUs there are"
    return number, f"{number} env runners, as asked for"


def run_to_resume(results: Path) -> Path | None:
    """Returns the newest unfinished run with a checkpoint; names end with the start time."""
    runs = [
        run
        for run in sorted((results / "runs").glob("*"))
        if not (run / "finished").exists() and any(run.glob("checkpoints/checkpoint_*"))
    ]
    return runs[-1] if runs else None


def finish_runs(results: Path) -> None:
    """Marks all runs as finished, also where they are restored: the next training is a new run."""
    for run in (results / "runs").glob("*"):
        (run / "finished").touch()


def payload_command(training: Path, results: Path, resumed: Path | None, number: int) -> list[str]:
    command = [sys.executable, "-m", "payload", "train", str(training / "experiment.yaml")]
    command += ["--address", "auto", "--results", str(results), "--status", str(STATUS)]
    command += ["--tracking-uri", os.environ["MLFLOW_TRACKING_URI"]]
    command += ["--config", json.dumps({"num_env_runners": number})]
    if resumed is not None:
        command += ["--resume", str(resumed)]
    return command
