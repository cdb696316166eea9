"""What an experiment or a script needs of every machine: code, packages, variables, data."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_serializer,
    field_validator,
    model_validator,
)

from payload.errors import UserError
from payload.experiment.conda_dependencies import CondaDependencies, read_conda_dependencies
from payload.experiment.hidden_modules import hidden_modules
from payload.notification import NotifyError, check, in_files

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""The name of a variable of the environment."""
_Name = Annotated[str, Field(pattern=f"^{VARIABLE.pattern}$")]
IMAGE = re.compile(r"[A-Za-z0-9][\w.-]*(:\d+)?(/[\w.-]+)*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?")
_Package = Annotated[str, Field(pattern=r"^[A-Za-z0-9]")]
"""Nothing that an installer would take for an option."""


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
    """Packages of PyPI to install in addition to volley's own."""
    pip_requirements_file: str | None = None
    """A requirements file with more of them."""
    conda_packages: list[_Package] = []
    """Packages of conda-forge, in conda's notation: programs and libraries, or Python packages that
    volley's own Python then imports."""
    conda_dependencies_file: str | None = None
    """A dependencies file of conda (environment.yml) with more of them, and with channels."""
    environment_variables: dict[_Name, str] = {}
    """Environment variables of every process of the run."""
    secrets: list[_Name] = []
    """Names of environment variables with secrets, which the driver gets: on this machine those of
    its environment, on a cluster what `volley submit` found in the environment and sent."""
    inputs: dict[_Name, str] = {}
    """Folders to read, by name; the environment finds each one at VOLLEY_INPUT_<NAME>."""
    apt_packages: list[_Package] = []
    """Packages of Ubuntu that every machine must have. On a cluster of volley they are added to the
    stack's own."""
    shm_size: str | None = Field(None, pattern=r"^[0-9]+[bkmgBKMG]?$")
    """Shared memory, as `docker run --shm-size` takes it: 64m, 2g."""
    image: str | None = None
    """A container image for the driver and the env runners, on a cluster: registry/name:tag, or
    registry/name@sha256:..."""
    notify: str | None = Field(None, repr=False)
    """A URL that gets a POST of JSON at the end, or a command that gets it on stdin. `$NAME` is the
    variable that contains one of them, which is sent to a cluster as a secret."""

    @field_validator("image")
    @classmethod
    def _names_an_image(cls, image: str | None) -> str | None:
        if image is not None and not IMAGE.fullmatch(image):
            raise ValueError(
                f"image: {image!r} must be registry/name:tag or registry/name@sha256:..., for "
                "example ghcr.io/me/maze:1"
            )
        return image

    @field_validator("notify", mode="before")
    @classmethod
    def _tells_somebody(cls, notify: Any) -> Any:
        if notify is None:
            return None
        text = notify.strip() if isinstance(notify, str) else ""
        try:
            check(text)
        except NotifyError as error:
            raise ValueError(f"notify: {error}") from None
        return text

    @field_serializer("notify", when_used="json")
    def _without_its_url(self, notify: str | None) -> str | None:
        """Keeps a URL, which may be a secret by itself, out of every file."""
        return None if notify is None else in_files(notify)

    @model_validator(mode="after")
    def _image_has_its_own_packages(self) -> Self:
        for key in ("apt_packages", "conda_packages", "conda_dependencies_file"):
            if self.image is not None and getattr(self, key):
                raise ValueError(f"{key}: cannot be given together with image, which has its own")
        return self


FILES = ("pip_requirements_file", "conda_dependencies_file")
"""Keys whose values are files."""
PATHS = ("source_directory", *FILES, "inputs")
"""Keys whose values are paths, or paths by name."""
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
    for key in ("source_directory", *FILES):
        if (path := getattr(needs, key)) is not None:
            paths[key] = path
    return paths


def problems_of_files(needs: MachineNeeds) -> Iterator[str]:
    """Yields what is wrong with the folders and files that it names, one line each."""
    for key, path in named_paths(needs).items():
        if not Path(path).exists():
            yield f"{key}: {path} does not exist"
        elif key in FILES and not Path(path).is_file():
            yield f"{key}: {path} is not a file"
        elif key not in FILES and not Path(path).is_dir():
            yield f"{key}: {path} is not a folder"
        elif key == "source_directory":
            yield from (f"{key}: {line}" for line in hidden_modules(Path(path)))
        elif key == "conda_dependencies_file":
            try:
                conda_dependencies(needs)
            except UserError as error:
                yield str(error)


def conda_dependencies(needs: MachineNeeds) -> CondaDependencies:
    """Returns what both keys ask of conda together.

    Raises:
        UserError: The dependencies file cannot be read.
    """
    path = needs.conda_dependencies_file
    file = CondaDependencies() if path is None else read_conda_dependencies(Path(path))
    return replace(file, packages=[*needs.conda_packages, *file.packages])


def pip_requirements(needs: MachineNeeds) -> list[str]:
    """Returns the lines of a requirements file: what all keys ask of pip together."""
    file = needs.pip_requirements_file
    lines = [] if file is None else Path(file).read_text().splitlines()
    return [*needs.pip_packages, *lines, *conda_dependencies(needs).pip]


def in_bytes(size: str) -> int:
    """Returns the bytes of a size as `docker run --shm-size` takes it: 64m, 2g."""
    number, unit = size.rstrip("bkmgBKMG"), size[-1].lower()
    return int(number) * {"k": 2**10, "m": 2**20, "g": 2**30}.get(unit, 1)
