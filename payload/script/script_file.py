"""A script as a file or the command line gives it, in the words of Azure ML's estimator."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from payload.command_line import command_name
from payload.errors import UserError, nearest
from payload.experiment.file import read_file
from payload.experiment.machine_needs import MachineNeeds, with_absolute_paths
from payload.experiment.settings import Experiment

FILES = (".yaml", ".yml", ".json")
TRAINING = set(Experiment.model_fields) - set(MachineNeeds.model_fields)
"""Keys of an experiment that a script does not have."""


class Script(MachineNeeds):
    """One Python program and what it needs."""

    entry_script: str
    """The Python file to run, relative to source_directory if that is given."""
    script_params: list[str] = Field(default_factory=list)
    """Its arguments: a list, or a mapping of options to values."""
    max_run_duration_seconds: float | None = Field(None, gt=0)
    """Seconds after which it is ended."""

    @field_validator("script_params", mode="before")
    @classmethod
    def _as_list(cls, params: Any) -> Any:
        if isinstance(params, Mapping):
            pairs = params.items()
            return [text for name, value in pairs for text in (str(name), *_value(value))]
        if isinstance(params, list):
            return [text for value in params for text in _value(value)]
        raise ValueError(f"script_params: {params!r} is neither a mapping nor a list")


def _value(value: Any) -> list[str]:
    """Returns an argument as the shell would pass it; none for the value of a flag."""
    if value is None or value == "":
        return []
    return [value if isinstance(value, str) else json.dumps(value)]


def read_script(path: Path, params: list[str], source_directory: str | None = None) -> Script:
    """Reads a script.

    Args:
        path: A Python file, or a YAML file with `entry_script`.
        params: Arguments from the command line; they replace those of the file.
        source_directory: From the command line; it replaces that of the file.

    Raises:
        UserError: A key, a value or a path cannot be used.
    """
    if path.suffix in FILES:
        values = with_absolute_paths(read_file(path), path.parent)
        _check_no_experiment(path, values)
    else:
        values = {"entry_script": str(path.absolute())}
    if source_directory is not None:
        values |= with_absolute_paths({"source_directory": source_directory}, Path())
    if params:
        values["script_params"] = params
    try:
        script = Script.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{path}: {_in_words(error)}") from None
    return script.model_copy(update={"entry_script": _python_file(script, path.parent)})


def _check_no_experiment(path: Path, values: dict[str, Any]) -> None:
    of_training = ", ".join(key for key in values if key in TRAINING)
    if of_training and "entry_script" in values:
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
        raise UserError(f"entry_script: {script.entry_script} is no file{near}")
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
