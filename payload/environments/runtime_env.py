"""What travels to the machines of a Ray cluster, as Ray's runtime_env.

Ray's own `pip` would copy the whole Python environment for each machine. Here code, packages and
inputs are one folder, the workers' working directory, which Ray packs and unpacks.
"""

import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from payload.environments import conda_worker
from payload.environments.inputs import copy_folder, input_variables, remove_copies
from payload.errors import UserError
from payload.experiment.machine_needs import MAX_TRAVEL_BYTES, MachineNeeds
from payload.experiment.settings import Experiment
from payload.experiment.travelling import travelling

CONTAINERS_PYTHON = "python3"
CODE = "."
"""The place of source_directory in the working directory."""
CACHE = "__pycache__"
INPUTS = "volley_inputs"
"""In the working directory, the folders of `inputs` by name."""


def runtime_env(
    needs: MachineNeeds,
    payload: Path,
    installed: Path | None,
    staging: Path,
    folders: Sequence[Path] = (),
) -> dict[str, Any]:
    """Returns Ray's runtime_env for an experiment or a script.

    Args:
        payload: The folder of this package.
        installed: The folder that `install_packages` returned.
        staging: A folder that becomes the workers' working directory.
        folders: Folders that a container may write to.

    Raises:
        UserError: The folders are too large for Ray, or have a link that leads out of them.
    """
    environment: dict[str, Any] = {"py_modules": [str(payload)]}
    if needs.environment_variables:
        environment["env_vars"] = dict(needs.environment_variables)
    under = needs.run_under if isinstance(needs, Experiment) else None
    if needs.image is not None:
        writable = shlex.quote(os.pathsep.join(map(str, folders)))
        container = f"-m payload.environments.container {shlex.quote(needs.image)}"
        own = ",".join(needs.environment_variables)
        inside = f"{under or ''} {CONTAINERS_PYTHON}"
        environment["py_executable"] = (
            f"{sys.executable} {container} --folders {writable} --own={own} -- {inside}"
        )
    elif under is not None:
        environment["py_executable"] = f"{under} {sys.executable}"
    if installed is not None and (installed / conda_worker.LOCK).exists():
        command = environment.get("py_executable", sys.executable)
        environment["py_executable"] = f"{sys.executable} -m {conda_worker.__name__} {command}"
    folders_of_needs = list(_folders(needs))
    if installed is None and not folders_of_needs:
        return environment
    _check_size(installed, folders_of_needs)
    shutil.rmtree(staging, ignore_errors=True)
    if installed is not None:
        _copy_packages(installed, staging)
    for folder, place in folders_of_needs:
        copy_folder(folder, staging / place, git=place == CODE)
    environment["working_dir"] = str(staging)
    if needs.inputs:
        environment["worker_process_setup_hook"] = (
            f"{set_input_variables.__module__}.set_input_variables"
        )
    return environment


def local_runtime_env(run_under: str, temporary: Path) -> dict[str, Any]:
    """Returns Ray's runtime_env on this machine, whose workers inherit all but run_under.

    Args:
        temporary: A folder for temporary files. A killed xvfb-run leaves some.
    """
    start_worker = shlex.quote(str(Path(__file__).with_name("start_worker.py")))
    command = f"env TMPDIR={shlex.quote(str(temporary))} {run_under}"
    return {"py_executable": f"{command} {sys.executable} {start_worker}"}


def set_input_variables() -> None:
    """Tells a worker where its inputs are, below the working directory; Ray calls it in each one.

    Their copies are next to Ray's folder of working directories: Ray removes these with
    shutil.rmtree (ray._private.runtime_env.packaging.delete_package), which fails in folders
    without a write bit. This function removes the copies of working directories that are gone.
    """
    package = Path.cwd()
    copies = package.parents[1] / INPUTS
    for old in copies.glob("*"):
        if not (package.parent / old.name).exists():
            remove_copies(old)
    inputs = {path.name: str(path) for path in (package / INPUTS).iterdir()}
    os.environ.update(input_variables(inputs, copies / package.name))


def _folders(needs: MachineNeeds) -> Iterator[tuple[Path, str]]:
    """Yields each folder that travels, and its place in the working directory."""
    if needs.source_directory is not None:
        yield Path(needs.source_directory), CODE
    for name, folder in needs.inputs.items():
        yield Path(folder), f"{INPUTS}/{name}"


def _copy_packages(installed: Path, staging: Path) -> None:
    """Copies installed packages as they are: they may bring links of their own."""
    ignored = shutil.ignore_patterns(CACHE)
    try:
        shutil.copytree(installed, staging, ignore=ignored, ignore_dangling_symlinks=True)
    except shutil.Error as error:
        source, _, reason = error.args[0][0]
        raise UserError(f"{source} cannot be copied: {reason}") from None
    except OSError as error:
        raise UserError(f"{installed} cannot be copied: {error.strerror}") from None


def _check_size(installed: Path | None, folders: list[tuple[Path, str]]) -> None:
    """Raises UserError if the folders are too large for Ray, before anything is copied."""
    sizes: Counter[Path] = Counter()
    for folder, place in folders:
        for below, path in travelling(folder, git=place == CODE).files.items():
            sizes[folder / below.parts[0]] += path.stat().st_size
    if installed is not None:
        for path in installed.rglob("*"):
            if path.is_file() and CACHE not in path.parts:
                sizes[installed / path.relative_to(installed).parts[0]] += path.stat().st_size
    if sizes.total() <= MAX_TRAVEL_BYTES:
        return
    named = ", ".join(f"{path} {size / 2**20:,.0f} MiB" for path, size in sizes.most_common(3))
    raise UserError(
        f"source_directory, pip_packages and inputs have {sizes.total() / 2**20:,.0f} MiB "
        f"together, more than the {MAX_TRAVEL_BYTES / 2**20:.0f} MiB that Ray distributes: {named}"
    )
