"""head.queue.plan FOLDER: reads an experiment or a script with the payload beside it.

It runs with FOLDER first on PYTHONPATH. Exit code 2: the payload refuses it; the reason is the last
line.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cluster_settings import read_settings
from ..files import update_with
from ..notification import BY_QUEUE, in_files
from ..paths import CONTAINERS, PACKAGES, PYTHON, SECRETS
from .record import ENV_RUNNERS, OUTPUT, STATUS

if TYPE_CHECKING:
    from payload.experiment import Experiment, MachineNeeds
    from payload.experiment.script import Script

REFUSAL = 2
"""The payload's exit code for input that it refuses; a retry would fail again."""
OOM_SCORE, OOM_SCORE_FILE = 500, "/proc/self/oom_score_adj"
"""The kernel kills the process with the highest score: an env runner, to which Ray gives 1000, goes
before the driver, and Ray itself last, which its units start with -500."""
CONDA = {"conda_packages", "conda_dependencies_file"}
EXPERIMENT, STACK, FILES = "experiment.yaml", "stack.yaml", "files.tar"


def main(folder: Path) -> int:
    from payload.experiment import Experiment, UserError

    try:
        read = read_plan(folder)
        _check_containers(read)
        plan = _of_experiment(read) if isinstance(read, Experiment) else _of_script(read)
    except UserError as error:
        print(error)
        return REFUSAL
    print(json.dumps(asdict(plan)))
    return 0


def _check_containers(needs: MachineNeeds) -> None:
    from payload.experiment import UserError

    if image_of(needs) and not CONTAINERS.exists():
        raise UserError(
            f"image: {image_of(needs)}: this cluster runs no containers. Next: pulumi config set "
            "containers true; volley up"
        )


@dataclass(frozen=True)
class Plan:
    """What the queue has to know of an experiment or a script."""

    needs: dict[str, Any]
    """Needs of payload/room.py, as JSON."""
    resume_key: str
    """The payload's rule for which runs continue."""
    script: bool = False
    machines_timeout_s: float | None = None
    """Seconds that it waits for machines in its turn; None for no limit."""
    algorithm: str = ""
    env: str = ""
    notify: str = ""
    """Whom its end is told to, without a URL."""


def _of_experiment(experiment: Experiment) -> Plan:
    from payload.experiment import resume_key
    from payload.experiment.placement import needs

    needed = {**asdict(needs(experiment.config)), "search": experiment.has_trials}
    told = _told(experiment)
    return Plan(
        needed, resume_key(experiment), algorithm=experiment.run, env=experiment.env, notify=told
    )


def _of_script(script: Script) -> Plan:
    from payload.experiment import UserError
    from payload.experiment.script import needs, resume_key

    settings = read_settings()
    if settings is None and script.num_workers is not None:
        raise UserError("num_workers: this cluster does not know its workers; use num_cpus")
    return Plan(
        asdict(needs(script, settings.worker.cpus if settings else 1)),
        resume_key(script),
        script=True,
        machines_timeout_s=script.cluster_coordination_timeout_seconds,
        notify=_told(script),
    )


def _told(needs: MachineNeeds) -> str:
    # The payload may be an older one, which notifies nobody.
    return in_files(getattr(needs, "notify", None) or "")


def process(module: str, folder: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Returns command and environment of a process of this package with an experiment's payload."""
    path = os.pathsep.join((str(folder), str(Path(__file__).parents[2])))
    command = [str(PYTHON), "-m", module, str(folder), *arguments]
    return command, {**os.environ, "PYTHONPATH": path}


def read_plan(folder: Path) -> Experiment | Script:
    """Reads the experiment with the stack's layer over it, as the payload does, or the script.

    Raises:
        UserError: The payload refuses it.
    """
    from payload.experiment import read_experiment
    from payload.experiment.file import read_file

    # The payload may be an older one, which knows no scripts.
    if "entry_script" in read_file(folder / EXPERIMENT):
        from payload.experiment.script import read_script

        return read_script(folder / EXPERIMENT, [])
    return read_experiment(folder / EXPERIMENT, folder / STACK).experiment


def key_of(name: str, resume_key: str, folder: Path) -> str:
    """Returns the key of an experiment's runs, which decides whether an earlier run continues.

    Args:
        resume_key: The payload's rule for the experiment: payload/experiment/resume.py.
        folder: Holds the archive of the experiment's files, if it names any.
    """
    files = folder / FILES
    digest = hashlib.sha256(resume_key.encode())
    if files.exists():
        update_with(digest, files)
    return f"{name}-{digest.hexdigest()[:12]}"


def name_in(key: str) -> str:
    """Returns the name of the experiment whose runs have a key."""
    return key.rpartition("-")[0]


def job_environment(needs: MachineNeeds, folder: Path, results: Path) -> dict[str, Any]:
    """Returns what Ray distributes to the workers: the payload, and what it names.

    Args:
        results: The folder of its runs.

    Raises:
        UserError: A package cannot be installed, the head lacks something, or it is too large.
        TemporaryError: A channel of conda does not answer.
    """
    from payload.environments.machine_requirements import check_requirements, install_packages
    from payload.environments.runtime_env import runtime_env

    check_requirements(needs)
    installed = install_packages(needs, PACKAGES)
    if installed is not None:
        os.utime(installed)  # disk.py keeps what an unfinished experiment has used.
    # The payload may be an older one, which knows no conda packages and no images.
    if installed is not None and needs.model_fields_set & CONDA:
        from payload.environments.conda_worker import LOCK, machine_prefix

        if (installed / LOCK).exists():
            # A worker that fails to install them would not say so to the queue.
            os.utime(machine_prefix(installed / LOCK))
    written = [[folder, results]] if image_of(needs) else []
    working = folder / "working-directory"
    return runtime_env(needs, folder / "payload", installed, working, *written)


def image_of(needs: MachineNeeds) -> str | None:
    return getattr(needs, "image", None)


def run_to_resume(results: Path) -> Path | None:
    """Returns the newest unfinished run with a checkpoint, search, or run of a script.

    Names end with the start time.
    """
    runs = [
        run
        for run in sorted((results / "runs").glob("*"))
        if not (run / "finished").exists()
        and (
            any(run.glob("checkpoints/checkpoint_*"))
            or any((run / name).exists() for name in ("search.json", "script.yaml"))
        )
    ]
    return runs[-1] if runs else None


def finish_runs(results: Path) -> None:
    """Marks all runs as finished, even if restored later: the next training is a new run."""
    for run in (results / "runs").glob("*"):
        if run.is_dir():
            (run / "finished").touch()


def payload_command(
    folder: Path,
    results: Path,
    resumed: Path | None,
    number: int,
    planned: Experiment | Script,
) -> list[str]:
    """Returns the payload's command line.

    Args:
        number: Number of env runners, which the trials of a search share.
    """
    from payload.experiment import Experiment

    verb = "run"
    if isinstance(planned, Experiment):
        verb = "tune" if planned.has_trials else "train"
    python = sys.executable
    if image_of(planned):
        from payload.environments.runtime_env import CONTAINERS_PYTHON

        python = CONTAINERS_PYTHON
    command = [python, "-m", "payload", verb, str(folder / EXPERIMENT)]
    command += ["--results", str(results), "--status", str(folder / STATUS)]
    command += ["--tracking-uri", os.environ["MLFLOW_TRACKING_URI"]]
    if isinstance(planned, Experiment):
        command += _options_of_training(folder, number, planned)
    if resumed is not None:
        command += ["--resume", str(resumed)]
    return command


def _options_of_training(folder: Path, number: int, experiment: Experiment) -> list[str]:
    """Returns the options that a script's command does not have."""
    options = ["--address", "auto"]
    asked = experiment.config.num_env_runners
    if asked is not None:
        # It may be the stack's number, which is not in the experiment's file.
        each = min(asked, number) if experiment.has_trials else asked
        options += ["--config", json.dumps({"num_env_runners": each})]
    if not experiment.has_trials and asked != 0:
        options += ["--env-runners", str(folder / ENV_RUNNERS)]
    return options


def entrypoint(command: list[str], folder: Path) -> str:
    """Returns the job's shell command line, which keeps the output in a file: it outlives Ray."""
    output = shlex.quote(str(folder / OUTPUT))
    run = f"export {BY_QUEUE}=1; exec {shlex.join(command)} >> {output} 2>&1"
    return f"echo See {output}; {with_secrets(folder.name)}; {run}"


def with_secrets(name: str) -> str:
    """Returns the shell's commands that give what follows an experiment's secrets.

    The kernel kills it before the queue.
    """
    file = shlex.quote(str(SECRETS / name))
    return f"echo {OOM_SCORE} > {OOM_SCORE_FILE}; [ ! -f {file} ] || . {file}"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
