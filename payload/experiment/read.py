"""Reads an experiment from its layers: a file, the command line, the numbers of a stack.

Each layer is translated into today's names and then merged over those before it. So a file may say
`num_workers` and the command line `num_env_runners`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from payload.errors import UserError, nearest
from payload.experiment.file import read_file
from payload.experiment.old_names import Translated, old_names_of, translate_config, translate_stop
from payload.experiment.settings import DEFAULT_TIME_TOTAL_S, Experiment, Settings, Stop

SECTIONS: dict[str, type[BaseModel]] = {"config": Settings, "stop": Stop}
Layer = Mapping[str, Any]
"""Plain data: run, env, config and stop, any of which may be missing."""


@dataclass(frozen=True)
class LoadedExperiment:
    """An experiment and what a person should know of how it was read."""

    experiment: Experiment
    notes: list[str]
    """A line for each name that was translated, ignored or added."""


def read_experiment(*layers: Layer | Path) -> LoadedExperiment:
    """Reads layers, later ones over earlier ones: `config` key by key, `stop` as a whole.

    Raises:
        UserError: A file cannot be read; an unknown key, a wrong type or value.
    """
    merged = _Merged()
    for layer in layers:
        merged.take(read_file(layer) if isinstance(layer, Path) else layer)
    if not merged.values.get("stop"):
        merged.values["stop"] = {"time_total_s": DEFAULT_TIME_TOTAL_S}
        merged.notes.append(f"stop is empty: time_total_s is {DEFAULT_TIME_TOTAL_S:g}")
    try:
        experiment = Experiment.model_validate(merged.values)
    except ValidationError as error:
        raise UserError(_one_line(error, merged.given_names)) from None
    return LoadedExperiment(experiment, merged.notes)


@dataclass
class _Merged:
    """What the layers so far say, in today's names."""

    values: dict[str, Any] = field(default_factory=dict)
    given_names: dict[str, str] = field(default_factory=dict)
    """The name that a person gave, where it is not today's."""
    notes: list[str] = field(default_factory=list)

    def take(self, layer: Layer) -> None:
        if not isinstance(layer, Mapping):
            raise UserError(f"experiment: {layer!r} is not a mapping of run, env, config and stop")
        for key, value in layer.items():
            if value is None:  # A section left empty in a file.
                continue
            if key not in SECTIONS:
                self.values[key] = value
                continue
            if not isinstance(value, dict):
                raise UserError(f"{key}: {value!r} is not a mapping of settings")
            translated = translate_config(value) if key == "config" else translate_stop(value)
            self._merge(key, translated)

    def _merge(self, section: str, translated: Translated) -> None:
        below = self.values.get(section, {}) if section == "config" else {}
        self.values[section] = {**below, **translated.values}
        for name in translated.values:
            self.given_names.pop(f"{section}.{name}", None)
        self.given_names |= {
            f"{section}.{new}": f"{section}.{old}" for new, old in translated.given.items()
        }
        self.notes += translated.notes


def _one_line(error: ValidationError, given_names: Mapping[str, str]) -> str:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    if not path or first["type"] == "value_error":
        return first["msg"].removeprefix("Value error, ")
    # Behind a key's own name stand a union's members: a number or a schedule.
    depth = 2 if path[0] in SECTIONS else 1
    model = SECTIONS.get(path[0], Experiment)
    key = ".".join(path[:depth])
    if first["type"] == "extra_forbidden":
        known = [f.alias or name for name, f in model.model_fields.items()]
        meant = nearest(path[depth - 1], [*known, *old_names_of(path[0], path[-1])])
        return f"{key}: unknown key{meant}; known: {', '.join(known)}"
    value = first["input"]
    given = given_names.get(key, key)
    if model is Settings and path[1] in ("lr", "entropy_coeff"):
        return f"{given}: {value!r} is neither a number nor a list of [steps, value]"
    return f"{given}: {value!r}: {first['msg'][0].lower()}{first['msg'][1:]}"
