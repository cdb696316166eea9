"""What an experiment or a script needs of every machine: code, packages, variables, data."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Package = Annotated[str, Field(pattern=r"^[A-Za-z0-9]")]
"""Nothing that apt or uv would take for an option."""


class MachineNeeds(BaseModel):
    """The keys that an experiment and a script have in common.

    Folders and files are relative to the file that names them.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True
    )

    source_directory: str | None = None
    """A folder from which Python imports, on every machine."""
    pip_packages: list[_Package] = []
    """Packages of PyPI to install beside volley's own."""
    pip_requirements_file: str | None = None
    """A requirements file with more of them."""
    environment_variables: dict[_Name, str] = {}
    """Environment variables of every process of the run."""
    inputs: dict[_Name, str] = {}
    """Folders to read, by name; the environment finds each one at VOLLEY_INPUT_<NAME>."""
    apt_packages: list[_Package] = []
    """Packages of Ubuntu that every machine must have. On a cluster of volley they are added to the
    stack's own."""
    shm_size: str | None = Field(None, pattern=r"^[0-9]+[bkmgBKMG]?$")
    """Shared memory, as `docker run --shm-size` takes it: 64m, 2g."""
    image: str | None = Field(None, pattern=r"^[A-Za-z0-9]\S*$")
    """A container image for the driver and the env runners, on a cluster: registry/name:tag, or
    registry/name@sha256:..."""

    @model_validator(mode="after")
    def _image_has_its_own_packages(self) -> Self:
        if self.image is not None and self.apt_packages:
            raise ValueError("apt_packages: cannot be given together with image, which has its own")
        return self


PATHS = ("source_directory", "pip_requirements_file", "inputs")
"""Keys whose values are paths, or paths by name."""
LEFT_OUT = frozenset(
    {"__pycache__", ".git", ".venv", "venv"}
    | {"results", ".packages", ".inputs"}
    | {".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Names of files and folders that stay behind when a folder travels."""
MAX_TRAVEL_BYTES = 512 * 2**20
"""Ray refuses a larger package (GCS_STORAGE_MAX_SIZE)."""


def with_absolute_paths(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Returns a file's values with the paths of PATHS, which are relative to `folder`, as absolute.

    A value of another type stays as it is: the model refuses it.
    """
    return {key: _absolute(v, folder) if key in PATHS else v for key, v in values.items()}


def _absolute(value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        return {name: _absolute(path, folder) for name, path in value.items()}
    if not isinstance(value, str):
        return value
    return os.path.normpath(folder.absolute() / Path(value).expanduser())


def named_paths(needs: MachineNeeds) -> dict[str, str]:
    """Returns every folder and file that it names, by its key."""
    paths = {f"inputs.{name}": folder for name, folder in needs.inputs.items()}
    if needs.source_directory is not None:
        paths["source_directory"] = needs.source_directory
    if needs.pip_requirements_file is not None:
        paths["pip_requirements_file"] = needs.pip_requirements_file
    return paths


def in_bytes(size: str) -> int:
    """Returns the bytes of a size as `docker run --shm-size` takes it: 64m, 2g."""
    number, unit = size.rstrip("bkmgBKMG"), size[-1].lower()
    return int(number) * {"k": 2**10, "m": 2**20, "g": 2**30}.get(unit, 1)
