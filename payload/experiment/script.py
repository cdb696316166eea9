"""A script as a file or the command line gives it, in the words of Azure ML's estimator."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from payload.command_line import command_name
from payload.errors import UserError, nearest
from payload.experiment.file import ENTRY_SCRIPT, dump, read_file
from payload.experiment.machine_needs import MachineNeeds, with_absolute_paths
from payload.experiment.old_names import translate_needs
from payload.experiment.settings import Experiment
from payload.room import Needs

FILES = (".yaml", ".yml", ".json")
TRAINING = set(Experiment.model_fields) - set(MachineNeeds.model_fields)
"""Keys of an experiment that a script does not have."""

LIMITS = frozenset(
    {"num_cpus", "num_gpus", "num_workers"}
    | {"cluster_coordination_timeout_seconds", "max_run_duration_seconds", "notify"}
)
"""Keys that do not decide what a script does."""


class Script(MachineNeeds):
    """One Python program and what it needs."""

    entry_script: str
    """The Python file to run, relative to source_directory if that is given."""
    script_params: list[str] = Field(default_factory=list)
    """Its arguments: a list, or a mapping of options to values."""
    num_cpus: int = Field(1, ge=1)
    """CPUs that the cluster's queue keeps for it and its tasks."""
    num_gpus: float = Field(0.0, ge=0, allow_inf_nan=False)
    """GPUs that the queue keeps for it: whole ones, or a part of one."""
    num_workers: int | None = Field(None, ge=1)
    """Instead of num_cpus: the CPUs of this many worker machines."""
    cluster_coordination_timeout_seconds: float | None = Field(None, gt=0)
    """Seconds that it waits for machines once it is its turn; then it fails."""
    max_run_duration_seconds: float | None = Field(None, gt=0)
    """Seconds after which it is ended, counted from each start."""

    @model_validator(mode="after")
    def _one_number_of_cpus(self) -> Self:
        if self.num_workers is not None and "num_cpus" in self.model_fields_set:
            raise ValueError("num_workers: cannot be given together with num_cpus")
        if self.num_gpus > 1 and self.num_gpus != int(self.num_gpus):
            raise ValueError(f"num_gpus: {self.num_gpus:g} is neither whole nor less than 1")
        return self

    @field_validator("script_params", mode="before")
    @classmethod
    def _as_list(cls, params: Any) -> Any:
        if isinstance(params, Mapping):
            pairs = params.items()
            return [text for name, value in pairs for text in (str(name), *_values(value))]
        if isinstance(params, list):
            return [_text(value) for value in params if value is not None]
        raise ValueError(f"script_params: {params!r} is neither a mapping nor a list")


def read_script(
    path: Path,
    params: list[str],
    source_directory: str | None = None,
    keys: Mapping[str, Any] = MappingProxyType({}),
) -> Script:
    """Reads a script.

    Args:
        path: A Python file, or a YAML file with `entry_script`.
        params: Arguments from the command line; they replace those of the file.
        source_directory: From the command line; it replaces that of the file.
        keys: From a Python program; they replace those of the file.

    Raises:
        UserError: A key, a value or a path cannot be used.
    """
    if path.suffix in FILES:
        values = with_absolute_paths(translate_needs(read_file(path)).values, path.parent)
        _check_no_experiment(path, values)
    else:
        values = {"entry_script": str(path.absolute())}
    values |= with_absolute_paths(keys, Path())
    if source_directory is not None:
        values |= with_absolute_paths({"source_directory": source_directory}, Path())
    if params:
        values["script_params"] = params
    try:
        script = Script.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{path}: {_in_words(error)}") from None
    return script.model_copy(update={"entry_script": _python_file(script, path.parent)})


def needs(script: Script, cpus_per_worker: int) -> Needs:
    """Returns what the queue keeps for a script: as for a driver that samples, with learners."""
    cpus = script.num_cpus
    if script.num_workers is not None:
        cpus = max(1, script.num_workers * cpus_per_worker)
    gpus = math.ceil(script.num_gpus)
    return Needs(
        num_env_runners=0,
        cpu_learners=cpus - 1,
        gpu_learners=gpus,
        gpus_per_learner=script.num_gpus / gpus if gpus else 0.0,
    )


def resume_key(script: Script) -> str:
    """Returns a hash of all that decides what a script does.

    A script that is submitted again with the same key and the same files finds its earlier results.
    """
    return hashlib.sha256(to_yaml(script, LIMITS).encode()).hexdigest()


def to_yaml(script: Script, without: frozenset[str] = frozenset()) -> str:
    """Returns the text of a file that reads back as this script."""
    return dump(json.loads(script.model_dump_json(exclude_unset=True, exclude=set(without))))


def is_script(path: Path) -> bool:
    """Whether a file is a Python file, or a YAML file with `entry_script`.

    Raises:
        UserError: It cannot be read.
    """
    return path.suffix == ".py" or ENTRY_SCRIPT in read_file(path)


def _values(value: Any) -> list[str]:
    """Returns the argument that follows an option; none follows a flag."""
    return [] if value is None or value == "" else [_text(value)]


def _text(value: Any) -> str:
    """Returns an argument as a shell would pass it."""
    if isinstance(value, datetime.date):
        return str(value)
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _check_no_experiment(path: Path, values: dict[str, Any]) -> None:
    of_training = ", ".join(key for key in values if key in TRAINING)
    if of_training and ENTRY_SCRIPT in values:
        raise UserError(
            f"{path}: has entry_script and {of_training}; a file describes a script or an "
            "experiment"
        )
    if of_training:
        raise UserError(
            f"{path}: has {of_training}, so it is an experiment. Next: "
            f"{command_name()} train {path}"
        )


def _python_file(script: Script, folder: Path) -> str:
    """Returns the path of the Python file, which exists and lies in source_directory."""
    source = script.source_directory
    path = Path(os.path.normpath(Path(source or folder).absolute() / script.entry_script))
    if not path.is_file():
        near = nearest(path.name, (file.name for file in path.parent.glob("*.py")))
        raise UserError(f"entry_script: {script.entry_script} is not a file{near}")
    if source is not None and not path.is_relative_to(source):
        raise UserError(f"entry_script: {script.entry_script} is not in source_directory, {source}")
    return str(path)


def _in_words(error: ValidationError) -> str:
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"] or first["type"] == "value_error":
        return message
    key = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return f"{key}: unknown key{nearest(key, Script.model_fields)}"
    if first["type"] == "missing":
        return f"{key}: is missing"
    return f"{key}: {first['input']!r}: {message[0].lower()}{message[1:]}"
