"""A script as a file or the command line gives it, in the words of Azure ML's estimator."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from payload.errors import UserError, nearest
from payload.experiment.file import read_file
from payload.experiment.machine_needs import MachineNeeds
from payload.experiment.settings import Experiment

FILES = (".yaml", ".yml", ".json")
PATHS = ("source_directory", "pip_requirements_file")
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


def is_script(path: Path) -> bool:
    """Whether a file is a script, or a file that describes one, and not an experiment.

    Raises:
        UserError: It cannot be read.
    """
    return path.suffix not in FILES or "entry_script" in read_file(path)


def read_script(path: Path, params: list[str], **command_line: Any) -> Script:
    """Reads a script.

    Args:
        path: A Python file, or a YAML file with `entry_script`.
        params: Arguments from the command line; they replace those of the file.
        command_line: Keys that override the file's; None where they are not given.

    Raises:
        UserError: A key, a value or a path cannot be used.
    """
    folder = path.parent
    if path.suffix in FILES:
        values = _absolute(read_file(path), folder)
    else:
        values = {"entry_script": str(path.absolute())}
    values |= {key: value for key, value in command_line.items() if value is not None}
    if params:
        values["script_params"] = params
    if both := TRAINING & set(values):
        raise UserError(
            f"{path}: has entry_script and {', '.join(sorted(both))}; a file describes a script "
            "or an experiment"
        )
    try:
        script = Script.model_validate(values)
    except ValidationError as error:
        raise UserError(f"{path}: {_in_words(error)}") from None
    return script.model_copy(update={"entry_script": str(_checked(script, folder))})


def _absolute(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    def absolute(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return os.path.normpath(folder.absolute() / Path(value).expanduser())

    paths = {key: absolute(values[key]) for key in PATHS if key in values}
    inputs = values.get("inputs")
    if isinstance(inputs, dict):
        paths["inputs"] = {name: absolute(value) for name, value in inputs.items()}
    return {**values, **paths}


def _checked(script: Script, folder: Path) -> Path:
    """Returns the path of the Python file, which exists and lies in source_directory."""
    given = Path(script.entry_script)
    source = None if script.source_directory is None else Path(script.source_directory)
    path = Path(os.path.normpath((source or folder).absolute() / given))
    if not path.is_file():
        beside = [file.name for file in path.parent.glob("*.py")]
        raise UserError(f"entry_script: {given} is no file{nearest(path.name, beside)}")
    if source is not None and not path.is_relative_to(source.absolute()):
        raise UserError(f"entry_script: {given} is not in source_directory, {source}")
    return path


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
