"""What an environment needs on a machine: code, packages, variables, data, shared memory.

Packages from PyPI and conda are installed next to the environment that trains.

Ray's runtime_env carries code, packages and data to the machines of a cluster, but neither apt
packages nor shared memory: a machine that lacks them is refused.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from payload.environments.conda_worker import LOCK
from payload.environments.inputs import input_variables
from payload.environments.installed_versions import installed_versions
from payload.errors import TemporaryError, UserError
from payload.experiment.conda_dependencies import CondaDependencies
from payload.experiment.machine_needs import (
    MachineNeeds,
    conda_dependencies,
    in_bytes,
    pip_requirements,
    problems_of_files,
)
from payload.experiment.settings import Experiment

PACKAGES, INPUTS = ".packages", ".inputs"
"""Folders below the results, for installed packages and copies of inputs."""
SHARED_MEMORY = Path("/dev/shm")
MISSING = re.compile(r"^ \+ (\S+==\S+)", re.MULTILINE)
PASSES = re.compile(
    r"failed to (?:fetch|download|connect)|error sending request|request failed|dns error"
    r"|timed? ?out|connection (?:refused|reset|closed)|\b(?:408|429|5\d\d) "
    r"|no space left|disk quota exceeded|input/output error|too many open files",
    re.I,
)
"""Of uv's errors, those that another try may not meet again."""
FINAL = re.compile(r"no solution found|\b(?:401|403|404) |certificate", re.I)
"""Of these, those that it would."""
REASON = re.compile(r"[×╰─▶│ ]+")
"""The tree that uv draws around its reasons."""


def provide(needs: MachineNeeds, results: Path) -> Path | None:
    """Prepares this process, and those that it starts, to run the experiment's environment.

    Args:
        results: A folder of results, which keeps packages and copies for later runs too.

    Returns:
        The folder of installed packages, see `install_packages`.

    Raises:
        UserError: A folder is missing, a package cannot be installed, the machine lacks something.
        TemporaryError: See `install_packages`.
    """
    if needs.image is not None:
        raise UserError(
            f"image: {needs.image}: images run only on a cluster. Next: volley submit, or leave it "
            "out"
        )
    check_requirements(needs)
    os.environ.update(needs.environment_variables)
    provide_inputs(needs, results)
    installed = install_packages(needs, results / PACKAGES)
    folders = [needs.source_directory, str(installed) if installed else None]
    for folder in reversed([folder for folder in folders if folder is not None]):
        sys.path.insert(0, folder)
        below = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = folder if not below else f"{folder}{os.pathsep}{below}"
    if installed is not None and (installed / LOCK).exists():
        _provide_conda(installed / LOCK, results / PACKAGES)
    return installed


def _provide_conda(lock: Path, prefixes: Path) -> None:
    from payload.environments.conda_prefix import activated, packages_of, prefix_of

    prefix = prefix_of(lock, prefixes)
    os.environ.update(activated(prefix))
    sys.path.append(str(packages_of(prefix)))


def provide_inputs(needs: MachineNeeds, results: Path) -> None:
    """Does the part of `provide` that a Ray job does not bring along."""
    check_secrets(needs)
    os.environ.update(input_variables(needs.inputs, results / INPUTS))


def check_requirements(needs: MachineNeeds) -> None:
    """Raises UserError unless all named files exist and this machine meets the requirements."""
    check_files(needs)
    check_machine(needs)


def check_files(needs: MachineNeeds) -> None:
    """Raises UserError unless the folders and files that the experiment names can be used."""
    for problem in problems_of_files(needs):
        raise UserError(problem)


def check_secrets(needs: MachineNeeds) -> None:
    """Raises UserError unless this process has the secrets."""
    for name in needs.secrets:
        if name not in os.environ:
            raise UserError(
                f"secrets: {name}: is not set in the environment. Next: export {name}=..., on a "
                "cluster volley submit again"
            )


def check_machine(needs: MachineNeeds) -> None:
    """Raises UserError unless this machine has the apt packages, the memory and the program."""
    lacking = [name for name in needs.apt_packages if not _is_installed(name)]
    if lacking:
        raise UserError(
            f"apt_packages: {', '.join(lacking)}: not installed on this machine; "
            f"sudo apt-get install {' '.join(lacking)}"
        )
    if needs.shm_size is not None and SHARED_MEMORY.is_dir():
        needed, there = in_bytes(needs.shm_size), shutil.disk_usage(SHARED_MEMORY).total
        if needed > there:
            raise UserError(
                f"shm_size: {needs.shm_size} is more than the {there / 2**30:.1f} GB of "
                f"{SHARED_MEMORY}; sudo mount -o remount,size={needs.shm_size} {SHARED_MEMORY}"
            )
    under = needs.run_under if isinstance(needs, Experiment) else None
    program = under.split()[0] if under and needs.image is None else None
    if program is not None and shutil.which(program) is None:
        raise UserError(f"run_under: {program} is not on the PATH of this machine")


def _is_installed(package: str) -> bool:
    """Asks dpkg; on a machine without dpkg every package counts as installed."""
    if shutil.which("dpkg-query") is None:
        return True
    command = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    return asked.stdout.strip() == "installed"


def install_packages(needs: MachineNeeds, packages: Path) -> Path | None:
    """Installs packages that the training environment lacks; returns their folder, or None.

    Packages that it has keep their versions: another numpy, gymnasium or torch in the environment
    runners alone would fail in ways that are hard to explain. Of conda packages the folder has the
    lock file, from which each machine installs them itself.

    Raises:
        UserError: A package does not exist, or needs another version of an installed one.
        TemporaryError: A registry or a channel does not answer, or the disk is full.
    """
    wanted, conda = pip_requirements(needs), conda_dependencies(needs)
    if not wanted and not conda.packages:
        return None
    here = sorted(f"{name}=={version}" for name, version in installed_versions().items())
    key = [sys.version, *here, *wanted]
    if conda.packages:
        key += [*conda.channels, *conda.packages]
    final = packages / hashlib.sha256("\n".join(key).encode()).hexdigest()[:12]
    if final.is_dir():
        return final
    aside = packages / f".{final.name}.{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    (aside / "site").mkdir(parents=True)
    try:
        named = ", ".join([*needs.pip_packages, *needs.conda_packages])
        print(f"Installing {named or 'packages'} ...", flush=True)
        by_conda = _lock_conda(conda, wanted, aside / "site" / LOCK) if conda.packages else []
        if wanted:
            _install_from_pypi(wanted, here, by_conda, aside)
        # Two trainings may install the same packages at once.
        if not final.is_dir():
            (aside / "site").rename(final)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return final


def _lock_conda(conda: CondaDependencies, wanted: list[str], lock: Path) -> list[str]:
    """Writes the lock file of conda packages; returns the names of the Python packages in it.

    Raises:
        UserError: See `install_packages`, or pip is to install another version of one of them.
    """
    from payload.environments.conda_solution import python_packages, solved, write_lock

    records = solved(conda)
    versions = python_packages(records)
    for text in wanted:
        with suppress(InvalidRequirement):  # A comment or an option; uv explains the others.
            requirement = Requirement(text)
            version = versions.get(canonicalize_name(requirement.name))
            if version is not None and not requirement.specifier.contains(version, True):
                raise UserError(
                    f"pip_packages: {text}: conda_packages has {requirement.name} {version}; "
                    "name it once, or in one version"
                )
    write_lock(records, lock)
    return list(versions)


def _install_from_pypi(
    wanted: list[str], here: list[str], by_conda: list[str], aside: Path
) -> None:
    """Installs into `aside`/site what is missing beside the distributions `here` and conda's."""
    arguments = []
    for option, lines in (
        ("--constraint", here),
        ("--excludes", by_conda),
        ("--requirement", wanted),
    ):
        file = aside / option.strip("-")
        file.write_text("\n".join(lines))
        arguments += [option, str(file)]
    missing = MISSING.findall(_uv("--dry-run", *arguments))
    if missing:
        _uv("--no-deps", "--target", str(aside / "site"), *missing)


def _uv(*arguments: str) -> str:
    """Runs `uv pip install`; returns its messages."""
    program = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    program = program or shutil.which("uv")
    if program is None:
        raise UserError("pip_packages: uv, which installs them, is not on the PATH")
    command: Sequence[str] = (program, "pip", "install", "--python", sys.executable, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = REASON.sub(" ", done.stderr).strip() or f"uv ended with {done.returncode}"
        reason = reason.partition("error: ")[2] or reason  # Warnings come first.
        passes = done.returncode < 0 or (PASSES.search(reason) and not FINAL.search(reason))
        raise (TemporaryError if passes else UserError)(f"pip_packages: {reason}")
    return done.stderr
