"""What run_training.py runs: the run that continues or a new one, and with how many env runners."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sync_results import HOME

if TYPE_CHECKING:
    from payload.experiment import Experiment, Node

TRAINING = Path("/opt/volley/training")
"""Payload, experiment, its files, and the stack's layer; a run command replaces all of them."""
STATUS = TRAINING / "status.json"
"""Where the payload writes its state: see RunStatus in payload/run/run_status.py."""
PACKAGES = HOME / "packages"
"""What pip_packages of experiments name, installed once."""
WORKING_DIRECTORY = HOME / "working-directory"
"""Of the experiment's workers; Ray packs it when the job is submitted."""
sys.path.insert(0, str(TRAINING))


def read_plan(training: Path) -> Experiment:
    """Reads the experiment and the stack's layer over it, as the payload does.

    Raises:
        UserError: The payload refuses it.
    """
    from payload.experiment import read_experiment

    return read_experiment(training / "experiment.yaml", training / "stack.yaml").experiment


def key_of(training: Path) -> str:
    """Returns what runs belong to: the experiment with its files. A changed one is a new run."""
    found = hashlib.sha256()
    for path in (training / "experiment.yaml", training / "files.tar"):
        # An experiment that names no folder has no archive.
        found.update(path.read_bytes() if path.exists() else b"")
    return found.hexdigest()[:12]


def job_environment(experiment: Experiment) -> dict[str, Any]:
    """Returns what Ray distributes to the workers: the payload, and what the experiment names.

    Raises:
        UserError: A package cannot be installed, the head lacks something, or it is too large.
    """
    from payload.environments.needs import check_needs
    from payload.environments.packages import install_packages
    from payload.environments.travel import runtime_env

    check_needs(experiment)
    installed = install_packages(experiment, PACKAGES)
    return runtime_env(experiment, TRAINING / "payload", installed, WORKING_DIRECTORY)


def env_runners(experiment: Experiment, nodes: Sequence[Node]) -> tuple[int | None, str]:
    """Returns the number of env runners for the payload, and the reason.

    The preview has refused what does not fit on the whole cluster. What is there now may be less:
    a training starts with the workers that came, and continues with those that are left. None: the
    trials of a search share what there is.

    Raises:
        UserError: There is no room for the learners.
    """
    from payload.experiment import Cluster, place

    cluster = Cluster(nodes)
    number = place(experiment.config, cluster, shrink=True)
    asked = experiment.config.num_env_runners
    if experiment.search and asked is None:
        return None, f"the trials of a search share {cluster.cpus} CPUs"
    if asked is None:
        return number, f"{number} env runners: {cluster.cpus} CPUs, one of them for the driver"
    if asked > number:
        return number, f"{number} env runners: {asked} do not fit the {cluster.cpus} CPUs there are"
    return number, f"{number} env runners, as asked for"


def run_to_resume(results: Path) -> Path | None:
    """Returns the newest unfinished run with a checkpoint, or the newest unfinished search.

    Names end with the start time.
    """
    runs = [
        run
        for run in sorted((results / "runs").glob("*"))
        if not (run / "finished").exists()
        and (any(run.glob("checkpoints/checkpoint_*")) or (run / "search.json").exists())
    ]
    return runs[-1] if runs else None


def finish_runs(results: Path) -> None:
    """Marks all runs as finished, also where they are restored: the next training is a new run."""
    for run in (results / "runs").glob("*"):
        (run / "finished").touch()


def payload_command(
    training: Path, results: Path, resumed: Path | None, number: int | None, verb: str
) -> list[str]:
    """Returns the payload's command line.

    Args:
        number: Of env runners; None leaves it to the payload.
        verb: "train", or "tune" where the experiment has a search space.
    """
    command = [sys.executable, "-m", "payload", verb, str(training / "experiment.yaml")]
    command += ["--address", "auto", "--results", str(results), "--status", str(STATUS)]
    command += ["--tracking-uri", os.environ["MLFLOW_TRACKING_URI"]]
    if number is not None:
        command += ["--config", json.dumps({"num_env_runners": number})]
    if resumed is not None:
        command += ["--resume", str(resumed)]
    return command
