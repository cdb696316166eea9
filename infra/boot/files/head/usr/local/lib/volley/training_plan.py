"""What train.py runs: the run that goes on or a new one, and with how many env runners."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

TRAINING = Path("/opt/volley/training")
"""Payload and experiment; the run command makes it anew whenever it starts a training."""
REFUSED = "payload: "
"""How the payload's one line about bad input starts."""
REFUSAL = 2


@dataclass(frozen=True)
class Wanted:
    """What an experiment says of the cluster."""

    env_runners: int | None
    """None: the cluster decides."""
    cpus_for_each: int = 1
    cpus_for_learners: int = 0


def read_wanted(experiment: Path) -> Wanted:
    """Reads the experiment as the payload does, older names included.

    Raises:
        SystemExit: The payload refuses it.
    """
    sys.path.insert(0, str(TRAINING))
    from payload.errors import UserError
    from payload.experiment.settings import parse_experiment, read_experiment_file

    try:
        config = parse_experiment(read_experiment_file(experiment)).experiment.config
    except UserError as error:
        print(f"{REFUSED}{error}", flush=True)
        sys.exit(REFUSAL)
    return Wanted(
        config.num_env_runners,
        config.num_cpus_per_env_runner,
        config.num_learners if config.num_gpus_per_learner == 0 else 0,
    )


def env_runners(
    wanted: Wanted, by_stack: int | None, cpus: int, begun: bool
) -> tuple[int | None, str]:
    """Returns how many the payload is told to use, and why; None is what the experiment says.

    What was asked for and does not fit is the payload's to refuse; but a training that has
    begun goes on with what is left of its cluster.
    """
    room = (cpus - wanted.cpus_for_learners) // wanted.cpus_for_each
    but_one = max(1, (cpus - max(1, wanted.cpus_for_learners)) // wanted.cpus_for_each)
    asked = wanted.env_runners if by_stack is None else by_stack
    if asked is None:
        return but_one, f"{but_one} env runners: {cpus} CPUs, one of them for the driver"
    if begun and asked > room:
        return but_one, f"{but_one} env runners: {asked} do not fit the {cpus} CPUs that are left"
    if by_stack is None:
        return None, f"{asked} env runners, as the experiment says"
    if wanted.env_runners is None:
        return by_stack, f"{by_stack} env runners: numEnvRunners of the stack"
    return by_stack, (
        f"{by_stack} env runners: numEnvRunners of the stack wins over "
        f"the experiment's {wanted.env_runners}"
    )


def run_to_resume(results: Path) -> Path | None:
    """Returns the newest run that has a checkpoint and is not over; names end with the time."""
    runs = [
        run
        for run in sorted((results / "runs").glob("*"))
        if not (run / "finished").exists() and any(run.glob("checkpoints/checkpoint_*"))
    ]
    return runs[-1] if runs else None


def finish_runs(results: Path) -> None:
    """Marks all runs as over, wherever they are restored: the next training starts a new one."""
    for run in (results / "runs").glob("*"):
        (run / "finished").touch()


def payload_command(
    experiment: Path, results: Path, resumed: Path | None, number: int | None
) -> list[str]:
    command = [sys.executable, "-m", "payload", "train", str(experiment)]
    command += ["--address", "auto", "--results", str(results)]
    command += ["--tracking-uri", os.environ["MLFLOW_TRACKING_URI"]]
    if number is not None:
        command += ["--config", json.dumps({"num_env_runners": number})]
    if resumed is not None:
        command += ["--resume", str(resumed)]
    return command
