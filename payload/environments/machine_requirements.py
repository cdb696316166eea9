"""What an environment needs on a machine: code, packages, variables, data, shared memory.

Ray's runtime_env carries code, packages and data to the machines of a cluster. It has nothing for
apt packages and shared memory: a machine that lacks them is refused.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from payload.environments.inputs import input_variables
from payload.environments.packages import install_packages
from payload.errors import UserError
from payload.experiment.settings import Experiment, in_bytes, named_paths

PACKAGES, INPUTS = ".packages", ".inputs"
"""Folders below the results, for installed packages and copies of inputs."""
SHARED_MEMORY = Path("/dev/shm")


def provide(experiment: Experiment, results: Path) -> Path | None:
    """Makes this process, and those that it starts, able to run the experiment's environment.

    Args:
        results: A folder of results, which keeps packages and copies for later runs too.

    Returns:
        The folder of what was installed, see `install_packages`.

    Raises:
        UserError: A folder is missing, a package cannot be installed, the machine lacks something.
    """
    check_requirements(experiment)
    os.environ.update(experiment.environment_variables)
    provide_inputs(experiment, results)
    installed = install_packages(experiment, results / PACKAGES)
    folders = [experiment.source_directory, str(installed) if installed else None]
    for folder in reversed([folder for folder in folders if folder is not None]):
        sys.path.insert(0, folder)
        below = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = folder if not below else f"{folder}{os.pathsep}{below}"
    return installed


def provide_inputs(experiment: Experiment, results: Path) -> None:
    """Does the part of `provide` that a Ray job has not brought along."""
    os.environ.update(input_variables(experiment.inputs, results / INPUTS))


def check_requirements(experiment: Experiment) -> None:
    """Raises UserError unless what the experiment names is there, and this machine has the rest."""
    check_folders(experiment)
    check_machine(experiment)


def check_folders(experiment: Experiment) -> None:
    """Raises UserError unless every folder and file that the experiment names is there."""
    for key, path in named_paths(experiment).items():
        if key == "pip_requirements_file" and not Path(path).is_file():
            raise UserError(f"{key}: {path} is not a file")
        if key != "pip_requirements_file" and not Path(path).is_dir():
            raise UserError(f"{key}: {path} is not a folder")


def check_machine(experiment: Experiment) -> None:
    """Raises UserError unless this machine has the apt packages, the memory and the program."""
    lacking = [name for name in experiment.apt_packages if not _is_installed(name)]
    if lacking:
        raise UserError(
            f"apt_packages: {', '.join(lacking)}: not installed on this machine; "
            f"sudo apt-get install {' '.join(lacking)}"
        )
    if experiment.shm_size is not None and SHARED_MEMORY.is_dir():
        needed, there = in_bytes(experiment.shm_size), shutil.disk_usage(SHARED_MEMORY).total
        if needed > there:
            raise UserError(
                f"shm_size: {experiment.shm_size} is more than the {there / 2**30:.1f} GB of "
                f"{SHARED_MEMORY}; sudo mount -o remount,size={experiment.shm_size} {SHARED_MEMORY}"
            )
    program = experiment.run_under.split()[0] if experiment.run_under else None
    if program is not None and shutil.which(program) is None:
        raise UserError(f"run_under: {program} is not on the PATH of this machine")


def _is_installed(package: str) -> bool:
    """Asks dpkg; on a machine without dpkg every package counts as installed."""
    if shutil.which("dpkg-query") is None:
        return True
    command = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return asked.stdout.strip() == "installed"
