"""What travels to the machines of a Ray cluster, as Ray's runtime_env.

Ray's own `pip` would copy the whole Python environment for each machine. Here code, packages and
inputs are one folder, the workers' working directory, which Ray packs and unpacks.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from payload.environments.needs import input_variables
from payload.errors import UserError
from payload.experiment.settings import LEFT_OUT, MAX_TRAVEL_BYTES, Experiment

INPUTS = "volley_inputs"
"""In the working directory, the folders of `inputs` by name."""


def runtime_env(
    experiment: Experiment, payload: Path, installed: Path | None, staging: Path
) -> dict[str, Any]:
    """Returns Ray's runtime_env for an experiment.

    Args:
        payload: The folder of this package.
        installed: What `install_packages` returned.
        staging: A folder that becomes the workers' working directory.

    Raises:
        UserError: It is too large for Ray.
    """
    found: dict[str, Any] = {"py_modules": [str(payload)]}
    if experiment.environment_variables:
        found["env_vars"] = dict(experiment.environment_variables)
    if experiment.run_under is not None:
        found["py_executable"] = f"{experiment.run_under} {sys.executable}"
    folders = dict(_folders(experiment, installed))
    if not folders:
        return found
    _check_size(list(folders))
    shutil.rmtree(staging, ignore_errors=True)
    for folder, place in folders.items():
        _copy(folder, staging / place)
    found["working_dir"] = str(staging)
    if experiment.inputs:
        found["worker_process_setup_hook"] = f"{set_input_variables.__module__}.set_input_variables"
    return found


def local_runtime_env(experiment: Experiment) -> dict[str, Any] | None:
    """Returns Ray's runtime_env on this machine, whose workers inherit all but run_under."""
    if experiment.run_under is None:
        return None
    return {"py_executable": f"{experiment.run_under} {sys.executable}"}


def set_input_variables() -> None:
    """Ray calls it in every worker: the inputs are below the working directory."""
    folders = {path.name: str(path.absolute()) for path in Path(INPUTS).iterdir()}
    os.environ.update(input_variables(folders))


def _folders(experiment: Experiment, installed: Path | None) -> Iterator[tuple[Path, str]]:
    """Yields each folder that travels with its place in the working directory."""
    if installed is not None:
        yield installed, "."
    if experiment.source_directory is not None:
        yield Path(experiment.source_directory), "."
    for name, folder in experiment.inputs.items():
        yield Path(folder), f"{INPUTS}/{name}"


def _check_size(folders: list[Path]) -> None:
    """Raises UserError for what Ray would refuse, before anything is copied."""
    sizes: Counter[Path] = Counter()
    for folder in folders:
        for parent, names, files in os.walk(folder, followlinks=True):
            names[:] = [name for name in names if name not in LEFT_OUT]
            for path in (Path(parent, name) for name in files if name not in LEFT_OUT):
                # A dangling link is not copied.
                if path.is_file():
                    sizes[folder / path.relative_to(folder).parts[0]] += path.stat().st_size
    if sizes.total() <= MAX_TRAVEL_BYTES:
        return
    named = ", ".join(f"{path} {size / 2**20:,.0f} MiB" for path, size in sizes.most_common(3))
    raise UserError(
        f"source_directory, pip_packages and inputs have {sizes.total() / 2**20:,.0f} MiB "
        f"together, more than the {MAX_TRAVEL_BYTES / 2**20:.0f} MiB that Ray distributes: {named}"
    )


def _copy(folder: Path, place: Path) -> None:
    try:
        shutil.copytree(
            folder,
            place,
            ignore=shutil.ignore_patterns(*LEFT_OUT),
            ignore_dangling_symlinks=True,
            dirs_exist_ok=True,
        )
    except shutil.Error as error:
        source, _, reason = error.args[0][0]
        raise UserError(f"{source} cannot travel to the cluster: {reason}") from None
