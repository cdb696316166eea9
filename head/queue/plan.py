"""head.queue.plan FOLDER: reads an experiment with the payload beside it, for the queue.

It runs with FOLDER first on PYTHONPATH. Exit code 2: the payload refuses the experiment; the reason
is the last line.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..paths import PACKAGES, PYTHON
from .record import ENV_RUNNERS, OUTPUT, STATUS

if TYPE_CHECKING:
    from payload.experiment import Experiment

REFUSAL = 2
"""The payload's exit code for input that it refuses; a retry would fail again."""
EXPERIMENT, STACK, FILES = "experiment.yaml", "stack.yaml", "files.tar"


def main(folder: Path) -> int:
    from payload.experiment import UserError, resume_key
    from payload.experiment.placement import needs

    try:
        experiment = read_plan(folder)
    except UserError as error:
        print(error)
        return REFUSAL
    needed = {**asdict(needs(experiment.config)), "search": bool(experiment.search)}
    print(json.dumps({"needs": needed, "resume_key": resume_key(experiment)}))
    return 0


def process(module: str, folder: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Returns command and environment of a process of this package with an experiment's payload."""
    path = os.pathsep.join((str(folder), str(Path(__file__).parents[2])))
    command = [str(PYTHON), "-m", module, str(folder), *arguments]
    return command, {**os.environ, "PYTHONPATH": path}


def read_plan(folder: Path) -> Experiment:
    """Reads the experiment and the stack's layer over it, as the payload does.

    Raises:
        UserError: The payload refuses it.
    """
    from payload.experiment import read_experiment

    return read_experiment(folder / EXPERIMENT, folder / STACK).experiment


def key_of(name: str, resume_key: str, folder: Path) -> str:
    """Returns the key of an experiment's runs, which decides whether an earlier run continues.

    Args:
        resume_key: The payload's rule for the experiment: payload/experiment/resume.py.
        folder: Holds the archive of the experiment's files, if it names any.
    """
    files = folder / FILES
    digest = hashlib.sha256(resume_key.encode())
    digest.update(files.read_bytes() if files.exists() else b"")
    return f"{name}-{digest.hexdigest()[:12]}"


def job_environment(experiment: Experiment, folder: Path) -> dict[str, Any]:
    """Returns what Ray distributes to the workers: the payload, and what the experiment names.

    Raises:
        UserError: A package cannot be installed, the head lacks something, or it is too large.
    """
    from payload.environments.machine_requirements import check_requirements, install_packages
    from payload.environments.runtime_env import runtime_env

    check_requirements(experiment)
    installed = install_packages(experiment, PACKAGES)
    return runtime_env(experiment, folder / "payload", installed, folder / "working-directory")


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
    """Marks all runs as finished, even if restored later: the next training is a new run."""
    for run in (results / "runs").glob("*"):
        (run / "finished").touch()


def payload_command(
    folder: Path, results: Path, resumed: Path | None, number: int, experiment: Experiment
) -> list[str]:
    """Returns the payload's command line.

    Args:
        number: Number of env runners, which the trials of a search share.
    """
    asked = experiment.config.num_env_runners
    verb = "tune" if experiment.search else "train"
    command = [sys.executable, "-m", "payload", verb, str(folder / EXPERIMENT)]
    command += ["--address", "auto", "--results", str(results), "--status", str(folder / STATUS)]
    command += ["--tracking-uri", os.environ["MLFLOW_TRACKING_URI"]]
    if asked is not None:
        # It may be the stack's number, which is not in the experiment's file.
        each = min(asked, number) if experiment.search else asked
        command += ["--config", json.dumps({"num_env_runners": each})]
    if not experiment.search and asked != 0:
        command += ["--env-runners", str(folder / ENV_RUNNERS)]
    if resumed is not None:
        command += ["--resume", str(resumed)]
    return command


def entrypoint(command: list[str], folder: Path) -> str:
    """Returns the job's shell command line, which keeps the output in a file: it outlives Ray."""
    output = shlex.quote(str(folder / OUTPUT))
    return f"echo See {output}; exec {shlex.join(command)} >> {output} 2>&1"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
