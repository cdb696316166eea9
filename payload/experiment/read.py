"""Reads an experiment from its layers: a file, the command line, the numbers of a stack.

Each layer is translated into today's names and then merged over the earlier ones, so a file may
say `num_workers` and the command line `num_env_runners`.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from payload.command_line import command_name
from payload.errors import UserError
from payload.experiment.file import ENTRY_SCRIPT, read_file
from payload.experiment.machine_needs import with_absolute_paths
from payload.experiment.old_names import (
    DURATION,
    Translated,
    old_names_of,
    translate_config,
    translate_needs,
    translate_stop,
)
from payload.experiment.search_space import (
    SearchSpace,
    check_is_value,
    check_no_space,
    check_searched,
    is_search_space,
    search_space,
)
from payload.experiment.settings import (
    ALGORITHMS,
    DEFAULT_TIME_TOTAL_S,
    EVALUATION_RETURN_MEAN,
    SETTINGS,
    Algorithm,
    Experiment,
    Stop,
)

SECTIONS = ("config", "stop")
Layer = Mapping[str, Any]
"""Plain data: run, env, config and stop, any of which may be missing."""


@dataclass(frozen=True)
class LoadedExperiment:
    """An experiment, and notes on how it was read."""

    experiment: Experiment
    notes: list[str]
    """A line for each name that was translated, ignored or added."""


def read_experiment(*layers: Layer | Path) -> LoadedExperiment:
    """Reads layers, later ones over earlier ones: `config` key by key, `stop` as a whole.

    Raises:
        UserError: A file cannot be read; an unknown key, a wrong type or value.
    """
    read = [
        (read_file(layer), layer.parent) if isinstance(layer, Path) else (layer, Path())
        for layer in layers
    ]
    runs = [layer["run"] for layer, _ in read if isinstance(layer, Mapping) and layer.get("run")]
    # An unknown algorithm is refused below, like any other wrong value.
    run: Algorithm = runs[-1] if runs and runs[-1] in ALGORITHMS else "IMPALA"
    merged = _Merged(run)
    for layer, folder in read:
        merged.take(layer, folder)
    merged.limit_duration()
    if not merged.values.get("stop"):
        merged.values["stop"] = {"time_total_s": DEFAULT_TIME_TOTAL_S}
        merged.notes.append(f"stop is empty: time_total_s is {DEFAULT_TIME_TOTAL_S:g}")
    sections: dict[str, BaseModel] = {}
    search = merged.split_search()
    # The algorithm first: it decides which settings exist.
    _validated(Experiment, {key: v for key, v in merged.values.items() if key not in SECTIONS}, "")
    for section, model in (("config", SETTINGS[run]), ("stop", Stop)):
        given = merged.values.get(section, {})
        sections[section] = _validated(model, given, section, run, merged.given_names)
    for name, space in search.items():
        for candidate in space.candidates:
            given = {**merged.values["config"], name: candidate}
            _validated(SETTINGS[run], given, "config", run, merged.given_names)
    experiment = Experiment.model_validate({**merged.values, **sections})
    goal, interval = experiment.stop.evaluation_return_mean, experiment.config.evaluation_interval
    if goal is not None and interval is None:
        raise UserError(
            f"stop.{EVALUATION_RETURN_MEAN}: {goal:g} is never reached without evaluation; set "
            "config.evaluation_interval, the iterations between two evaluations"
        )
    return LoadedExperiment(experiment.searching(search), merged.notes)


@dataclass
class _Merged:
    """The layers read so far, in today's names."""

    run: Algorithm
    values: dict[str, Any] = field(default_factory=dict)
    given_names: dict[str, str] = field(default_factory=dict)
    """The name in the file or on the command line, if it is not today's."""
    notes: list[str] = field(default_factory=list)

    def take(self, layer: Layer, folder: Path) -> None:
        """Merges a layer over the earlier ones; its relative paths start in `folder`."""
        if not isinstance(layer, Mapping):
            raise UserError(f"experiment: {layer!r} is not a mapping of run, env, config and stop")
        if ENTRY_SCRIPT in layer:
            volley = command_name()
            raise UserError(
                f"{ENTRY_SCRIPT}: describes a script. Next: {volley} run FILE here, or {volley} "
                f"submit FILE on a cluster of this version ({volley} up)"
            )
        translated = translate_needs(layer)
        self.notes += translated.notes
        for key, value in with_absolute_paths(translated.values, folder).items():
            if value is None:  # A section left empty in a file.
                continue
            if key not in SECTIONS:
                check_no_space(key, value)
                self.values[key] = value
                continue
            if not isinstance(value, dict):
                raise UserError(f"{key}: {value!r} is not a mapping of settings")
            if key == "config":
                self._merge(key, translate_config(_with_spaces(value), self.run))
            else:
                for criterion, limit in value.items():
                    check_no_space(f"stop.{criterion}", limit)
                self._merge(key, translate_stop(value))

    def split_search(self) -> dict[str, SearchSpace]:
        """Replaces every search space by a candidate; returns the search spaces.

        Raises:
            UserError: A setting cannot be searched, or its kind of search space does not exist.
        """
        spaces = {}
        for name, value in self.values.get("config", {}).items():
            given = self.given_names.get(f"config.{name}", f"config.{name}")
            field = SETTINGS[self.run].model_fields.get(name)
            if isinstance(value, SearchSpace):
                check_searched(name, given)
                spaces[name] = value
            elif field is not None and get_origin(field.annotation) is not dict:
                check_is_value(given, value)
        if spaces:
            first = {name: space.candidates[0] for name, space in spaces.items()}
            self.values["config"] = {**self.values["config"], **first}
        return spaces

    def limit_duration(self) -> None:
        """Makes the limit of Azure ML's estimator a stop criterion, whichever layer gave it.

        Raises:
            UserError: Both are given.
        """
        limit = self.values.pop(DURATION, None)
        if limit is None:
            return
        stop = self.values.setdefault("stop", {})
        if "time_total_s" in stop:
            raise UserError(f"{DURATION}: stop.time_total_s is set too; keep one of the two")
        stop["time_total_s"] = limit
        self.given_names["stop.time_total_s"] = DURATION
        self.notes.append(f"{DURATION} is now stop.time_total_s: {limit}")

    def _merge(self, section: str, translated: Translated) -> None:
        below = self.values.get(section, {}) if section == "config" else {}
        self.values[section] = {**below, **translated.values}
        for name in translated.values:
            self.given_names.pop(f"{section}.{name}", None)
        self.given_names |= {
            f"{section}.{new}": f"{section}.{old}" for new, old in translated.given.items()
        }
        self.notes += translated.notes


def _with_spaces(config: dict[str, Any]) -> dict[str, Any]:
    """Returns settings with every search space as a SearchSpace."""
    settings = {}
    for key, value in config.items():
        if key == "env_config":
            _check_arguments(value)
            settings[key] = value
            continue
        settings[key] = search_space(f"config.{key}", value) or value
        if key == "model" and isinstance(value, dict):
            settings[key] = {
                name: search_space(f"config.model.{name}", inner) or inner
                for name, inner in value.items()
            }
    return settings


def _check_arguments(env_config: Any) -> None:
    """Raises UserError if a search space replaces an environment's arguments, or one of them.

    An argument may have the name of a kind of search space, so only a complete one counts.
    """
    arguments = env_config if isinstance(env_config, dict) else {}
    inner = {f"config.env_config.{name}": value for name, value in arguments.items()}
    for key, value in {"config.env_config": env_config, **inner}.items():
        if is_search_space(value):
            check_searched("env_config", key)


Model = TypeVar("Model", bound=BaseModel)


def _validated(
    model: type[Model],
    values: Mapping[str, Any],
    section: str,
    run: Algorithm = "IMPALA",
    given_names: Mapping[str, str] = MappingProxyType({}),
) -> Model:
    """Returns a section of an experiment, or raises UserError with the first error in it."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
    if not first["loc"] or first["type"] == "value_error":
        raise UserError(first["msg"].removeprefix("Value error, "))
    # After the key, pydantic names a member of a union: a number or a schedule.
    name = str(first["loc"][0])
    key = f"{section}.{name}" if section else name
    if first["type"] == "extra_forbidden":
        raise UserError(f"{key}: {_unknown(model, name, section, run)}")
    given, value = given_names.get(key, key), first["input"]
    field = model.model_fields.get(name)
    if field is not None and list in _types(field.annotation) and float in _types(field.annotation):
        raise UserError(f"{given}: {value!r} is neither a number nor a list of [steps, value]")
    raise UserError(f"{given}: {value!r}: {first['msg'][0].lower()}{first['msg'][1:]}")


def _unknown(model: type[BaseModel], name: str, section: str, run: Algorithm) -> str:
    today = [field.alias or key for key, field in model.model_fields.items()]
    others = [other for other, settings in SETTINGS.items() if name in settings.model_fields]
    if section == "config" and others:
        return f"is a setting of {' and '.join(others)}; this experiment runs {run}"
    names = [*today, *old_names_of(section, name)]
    by_lower = {candidate.lower(): candidate for candidate in names}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)
    nearest = " or ".join(", ".join(by_lower[match] for match in matches).rsplit(", ", 1))
    meant = f" (did you mean {nearest}?)" if matches else ""
    return f"unknown key{meant}; docs/algorithm.md lists all"


def _types(annotation: Any) -> list[Any]:
    """Returns the types of a union, `list` for a list of anything."""
    parts = get_args(annotation) if get_origin(annotation) in (UnionType, Union) else [annotation]
    types: list[Any] = []
    for part in parts:
        inner = get_args(part)[0] if get_origin(part) is Annotated else part
        types.append(get_origin(inner) or inner)
    return types
