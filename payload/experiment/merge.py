"""Merges the layers of an experiment: plain data under today's names.

Each layer is translated into today's names and then merged over the earlier ones, so a file may
say `num_workers` and the command line `num_env_runners`.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_origin

from payload.command_line import command_name
from payload.errors import UserError
from payload.experiment.file import ENTRY_SCRIPT, read_file
from payload.experiment.machine_needs import with_absolute_paths
from payload.experiment.old_names import (
    HORIZON,
    Translated,
    translate_config,
    translate_keys,
    translate_needs,
    translate_stop,
)
from payload.experiment.old_tables import DURATION, RENAMED_ENVS
from payload.experiment.problems import FATAL, Problem
from payload.experiment.search_space import (
    SearchSpace,
    check_is_value,
    check_no_space,
    check_searched,
    is_search_space,
    search_space,
)
from payload.experiment.settings import ALGORITHMS, SETTINGS, Algorithm
from payload.experiment.written_numbers import whole_number

SECTIONS = ("config", "stop")
Layer = Mapping[str, Any]
"""Plain data: run, env, config and stop, any of which may be missing."""
CLASS_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
"""Matches what `rllib train` takes for an environment's class."""


def merge(*layers: Layer | Path) -> "Merged":
    """Merges layers, later ones over earlier ones: `config` key by key, `stop` as a whole.

    Raises:
        UserError: A file cannot be read, or a layer is not a mapping of sections.
    """
    read = [
        (read_file(layer), layer.parent) if isinstance(layer, Path) else (layer, Path())
        for layer in layers
    ]
    runs = [layer["run"] for layer, _ in read if isinstance(layer, Mapping) and layer.get("run")]
    # An unknown algorithm is refused later, like any other wrong value.
    run: Algorithm = runs[-1] if runs and runs[-1] in ALGORITHMS else "IMPALA"
    merged = Merged(run)
    for layer, folder in read:
        merged.take(layer, folder)
    merged.complete()
    return merged


@dataclass
class Merged:
    """The layers read so far, in today's names."""

    run: Algorithm
    values: dict[str, Any] = field(default_factory=dict)
    given_names: dict[str, str] = field(default_factory=dict)
    """The name in the file or on the command line, if it is not today's."""
    search: dict[str, SearchSpace] = field(default_factory=dict)
    """Search spaces by setting; `values` has a candidate of each."""
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    """Keys that are left out, although they change what is learned."""

    def take(self, layer: Layer, folder: Path) -> None:
        """Merges a layer over the earlier ones; its relative paths start in `folder`.

        Raises:
            UserError: It is not a mapping of sections.
        """
        if not isinstance(layer, Mapping):
            raise UserError(f"experiment: {layer!r} is not a mapping of run, env, config and stop")
        if ENTRY_SCRIPT in layer:
            volley = command_name()
            raise UserError(
                f"{ENTRY_SCRIPT}: describes a script. Next: {volley} run FILE here, or {volley} "
                f"submit FILE on a cluster of this version ({volley} up)"
            )
        needs = translate_needs(layer)
        keys = translate_keys(needs.values)
        self._note(needs)
        self._note(keys)
        beside: dict[str, Any] = {}
        for key, value in with_absolute_paths(keys.values, folder).items():
            if value is None:  # A section left empty in a file.
                continue
            if key not in SECTIONS:
                with self._collecting(key):
                    check_no_space(key, value)
                    self.values[key] = value
                continue
            if not isinstance(value, dict):
                raise UserError(f"{key}: {value!r} is not a mapping of settings")
            if key == "config":
                translated = translate_config(self._with_spaces(value), self.run)
                beside = translated.beside
                self._merge(key, translated)
            else:
                self._merge(key, translate_stop(self._without_spaces(value)))
        self.values |= {key: value for key, value in beside.items() if layer.get(key) is None}

    def complete(self) -> None:
        """Moves what belongs to another key today, and sets search spaces apart."""
        with self._collecting(DURATION):
            self._limit_duration()
        with self._collecting("config.horizon"):
            self._limit_episodes()
        with self._collecting("env"):
            self._name_environment()
        self._split_search()

    def leave_out(self, section: str, name: str | None) -> bool:
        """Removes a key; returns whether it was there."""
        if section == "config":
            self.search.pop(name or "", None)
        values = self.values[section] if section else self.values
        return values.pop(name or "", self) is not self

    @contextmanager
    def _collecting(self, key: str) -> Iterator[None]:
        """Makes a UserError a problem, so that all of a file are told at once.

        Args:
            key: What it is about; an experiment without env or run would be another one.
        """
        try:
            yield
        except UserError as error:
            self.problems.append(Problem(str(error), name=key if key in FATAL else None))

    def _note(self, translated: Translated) -> None:
        self.notes += translated.notes
        self.problems += map(Problem, translated.problems)

    def _split_search(self) -> None:
        """Replaces every search space in `config` by a candidate."""
        given_config = self.values.get("config", {})
        config: dict[str, Any] = {}
        for name, value in given_config.items():
            given = self.given_names.get(f"config.{name}", f"config.{name}")
            field = SETTINGS[self.run].model_fields.get(name)
            with self._collecting(given):
                if isinstance(value, SearchSpace):
                    check_searched(name, given)
                    self.search[name] = value
                    config[name] = value.candidates[0]
                    continue
                if field is not None and get_origin(field.annotation) is not dict:
                    check_is_value(given, value)
                config[name] = value
        if given_config:
            self.values["config"] = config

    def _limit_duration(self) -> None:
        """Makes the limit of Azure ML's estimator a stop criterion, whichever layer gave it."""
        limit = self.values.pop(DURATION, None)
        if limit is None:
            return
        stop = self.values.setdefault("stop", {})
        if "time_total_s" in stop:
            raise UserError(f"{DURATION}: stop.time_total_s is set too; keep one of the two")
        stop["time_total_s"] = limit
        self.given_names["stop.time_total_s"] = DURATION
        self.notes.append(f"{DURATION} is now stop.time_total_s: {limit}")

    def _limit_episodes(self) -> None:
        """Makes RLlib's old horizon an argument of gymnasium.make, whichever layer gave it."""
        config = self.values.get("config", {})
        steps = whole_number(config.pop(HORIZON, None))
        if steps is None:
            return
        arguments = config.get("env_config") or {}
        if not isinstance(steps, int) or isinstance(steps, bool) or steps < 1:
            raise UserError(f"config.horizon: {steps!r} is not a number of environment steps")
        if not isinstance(arguments, dict) or "max_episode_steps" in arguments:
            raise UserError(
                "config.horizon: env_config.max_episode_steps is set too; keep one of the two"
            )
        config["env_config"] = {**arguments, "max_episode_steps": steps}
        self.notes.append(f"config.horizon is now env_config.max_episode_steps: {steps}")

    def _name_environment(self) -> None:
        """Replaces a retired id by the one that its task has today."""
        env = self.values.get("env")
        if isinstance(env, str) and env in RENAMED_ENVS:
            self.values["env"] = RENAMED_ENVS[env]
            self.notes.append(f"env {env} is now {RENAMED_ENVS[env]}: the same task")
        if isinstance(env, str) and CLASS_PATH.fullmatch(env):
            package, _, name = env.rpartition(".")
            raise UserError(
                f"env: {env} is a class; register it with gymnasium.register in a package, and "
                f"give env: {package.rpartition('.')[2]}:{name}-v0 (docs/environments.md)"
            )

    def _merge(self, section: str, translated: Translated) -> None:
        below = self.values.get(section, {}) if section == "config" else {}
        self.values[section] = {**below, **translated.values}
        for name in translated.values:
            self.given_names.pop(f"{section}.{name}", None)
        self.given_names |= {
            f"{section}.{new}": f"{section}.{old}" for new, old in translated.given.items()
        }
        self._note(translated)

    def _with_spaces(self, config: dict[str, Any]) -> dict[str, Any]:
        """Returns settings with every search space as a SearchSpace."""
        settings = {}
        for key, value in config.items():
            with self._collecting(key):
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

    def _without_spaces(self, stop: dict[str, Any]) -> dict[str, Any]:
        criteria = {}
        for criterion, limit in stop.items():
            with self._collecting(criterion):
                check_no_space(f"stop.{criterion}", limit)
                criteria[criterion] = limit
        return criteria


def _check_arguments(env_config: Any) -> None:
    """Raises UserError if a search space replaces an environment's arguments, or one of them.

    An argument may have the name of a kind of search space, so only a complete one counts.
    """
    arguments = env_config if isinstance(env_config, dict) else {}
    inner = {f"config.env_config.{name}": value for name, value in arguments.items()}
    for key, value in {"config.env_config": env_config, **inner}.items():
        if is_search_space(value):
            check_searched("env_config", key)
