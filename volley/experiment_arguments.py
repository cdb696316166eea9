"""What `train` and `submit` take in Python: a file, a dict or a script, and keyword arguments."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from payload.experiment import Experiment, UserError, nearest, read_experiment, to_yaml
from payload.experiment.file import ENTRY_SCRIPT
from payload.experiment.old_tables import DURATION
from payload.experiment.script import Script, is_script, read_script
from payload.experiment.script import to_yaml as script_yaml

Given = str | os.PathLike[str] | Mapping[str, Any] | None
"""A file, the keys of one, or None for the defaults."""
OF_EXPERIMENT = {*Experiment.model_fields, DURATION}
"""Keyword arguments with these names are keys of the experiment, all others are in its `config`."""


def experiment_of(given: Given, keys: Mapping[str, Any]) -> Experiment:
    """Returns an experiment in which keyword arguments replace what a file or a dict says.

    Prints a line for each older name, which `write_file` translates.

    Raises:
        UserError: The file cannot be read; an unknown key, a wrong type or value.
    """
    below: list[Mapping[str, Any] | Path] = []
    if given is not None:
        below = [_plain(given) if isinstance(given, Mapping) else Path(given)]
    try:
        loaded = read_experiment(*below, _layer(keys))
    except UserError as error:
        raise _of_keyword(error, keys) from None
    if only_file(given, keys) is None:
        print(*(f"{note}\n" for note in loaded.notes), sep="", end="")
    return loaded.experiment


def script_of(given: Given, keys: Mapping[str, Any]) -> Script | None:
    """Returns a script in which keyword arguments replace the keys; None for an experiment.

    Raises:
        UserError: The file cannot be read; an unknown key, a wrong type or value.
    """
    if isinstance(given, Mapping):
        if ENTRY_SCRIPT not in given:
            return None
        keys = {**given, **keys}
        path = Path(keys.get("source_directory") or "", str(keys.pop(ENTRY_SCRIPT)))
    elif given is not None and is_script(Path(given)):
        path = Path(given)
    else:
        return None
    return read_script(path, [], keys=_plain(keys))


def only_file(given: Given, keys: Mapping[str, Any]) -> Path | None:
    """Returns the file if it is all that is given."""
    return Path(given) if isinstance(given, str | os.PathLike) and not keys else None


def write_file(read: Experiment | Script, given: Given, folder: Path) -> Path:
    """Writes what was read to a file, which is named as `title_of` says."""
    path = folder / f"{title_of(read, given)}.yaml"
    path.write_text(script_yaml(read) if isinstance(read, Script) else to_yaml(read), "utf-8")
    return path


def title_of(read: Experiment | Script, given: Given) -> str:
    """Returns the name of the given file, or one after the content."""
    if isinstance(given, str | os.PathLike):
        return Path(given).stem
    if isinstance(read, Script):
        return Path(read.entry_script).stem
    return trained(read)


def trained(experiment: Experiment) -> str:
    """Returns algorithm and environment, as a file's name can have them."""
    return re.sub(r"[/:]", "-", f"{experiment.run}-{experiment.env}")


def _of_keyword(error: UserError, keys: Mapping[str, Any]) -> UserError:
    """Returns the error of `envv=...`, which is not a setting, with the nearest key."""
    for key in keys:
        near = nearest(key, OF_EXPERIMENT)
        if near and str(error).startswith(f"config.{key}: unknown key;"):
            return UserError(f"{key}: unknown key{near}")
    return error


def _layer(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Returns keyword arguments as the keys of a file: settings go into `config`."""
    layer = {key: _plain(value) for key, value in keys.items() if key in OF_EXPERIMENT}
    settings = _plain({key: value for key, value in keys.items() if key not in OF_EXPERIMENT})
    config = layer.get("config") or {}
    if settings and isinstance(config, dict):
        layer["config"] = {**config, **settings}
    return layer


def _plain(value: Any) -> Any:
    """Returns a value as YAML has it: paths are text, tuples are lists.

    The arguments of an environment stay as they are.
    """
    if isinstance(value, Mapping):
        return {k: inner if k == "env_config" else _plain(inner) for k, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value
