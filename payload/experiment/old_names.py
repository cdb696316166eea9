"""Today's names of the settings of older RLlib versions and of Azure ML's samples."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from payload.errors import UserError, nearest
from payload.experiment.old_structures import exploration, learners_of_gpus
from payload.experiment.old_tables import (
    DURATION,
    IGNORED_BY_IMPALA,
    IGNORED_BY_PPO,
    IGNORED_CONFIG,
    IGNORED_IN,
    IGNORED_KEYS,
    IGNORED_MODEL,
    KEYS_WITHOUT_SUCCESSOR,
    MODEL_ONE_VALUE,
    MODEL_WITHOUT_SUCCESSOR,
    ONE_VALUE,
    RENAMED_CONFIG,
    RENAMED_IN,
    RENAMED_MODEL,
    RENAMED_NEEDS,
    RENAMED_STOP,
    RMSPROP,
    SAC_NETWORKS,
    WITHOUT_SUCCESSOR,
)
from payload.experiment.search_space import LISTS, SearchSpace
from payload.experiment.settings import INFO_MEAN, SETTINGS, Algorithm

HORIZON = "horizon"
"""Today it is an argument of gymnasium.make, which another layer may give too."""
STRUCTURED = ("num_gpus", "num_accs", "exploration_config", "model", *RENAMED_IN, *SAC_NETWORKS)
"""Keys of `config` that are several settings today."""


@dataclass
class Translated:
    """A section under today's names."""

    values: dict[str, Any] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)
    """Today's name -> the older name that was given."""
    notes: list[str] = field(default_factory=list)
    """A line for each name that changed or is ignored."""
    beside: dict[str, Any] = field(default_factory=dict)
    """What the section says of keys that are beside it today."""
    problems: list[str] = field(default_factory=list)
    """A line for each name that is left out, although it changes what is learned."""

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Makes a UserError a problem, so that all of a file are told at once."""
        try:
            yield
        except UserError as error:
            self.problems.append(str(error))


def translate_config(config: dict[str, Any], run: Algorithm = "IMPALA") -> Translated:
    """Returns the same settings of an algorithm under today's names."""
    translated = Translated()
    for key, value in config.items():
        with translated.collecting():
            _translate(translated, config, key, value, run)
    return translated


def _translate(
    translated: Translated, config: dict[str, Any], key: str, value: Any, run: Algorithm
) -> None:
    """Adds what a key of `config` means; raises UserError if it has no meaning today."""
    settings = SETTINGS[run].model_fields
    if key in RENAMED_CONFIG:
        # RLlib's own dump of a config has both names, the older one without a value.
        if value is not None or RENAMED_CONFIG[key] not in config:
            _rename("config", translated, config, key, RENAMED_CONFIG[key], value)
    elif (reason := _reason_to_ignore(key, config, run)) is not None:
        translated.notes.append(f"config.{key} is ignored: {reason}")
    elif key in STRUCTURED:
        if isinstance(value, SearchSpace):
            raise UserError(f"config.{key}: cannot be searched; only single settings can")
        _translate_inside(translated, config, key, value, run)
    elif key == "env":
        translated.beside["env"] = value
    elif key == "seed" and isinstance(value, SearchSpace) and value.kind in LISTS:
        translated.values["seed"] = value.values[0]
        translated.beside["num_seeds"] = len(value.values)
        count = f"num_seeds: {len(value.values)}"
        translated.notes.append(f"config.seed is now seed: {value.values[0]}, and {count} for tune")
    elif key in settings or key == HORIZON:
        translated.values[key] = _value_today(translated, key, value)
    elif key == "prioritized_replay":
        _replay(translated, config, f"config.{key}", bool(value))
    else:
        _check_meaning(f"config.{key}", value, ONE_VALUE.get(key), WITHOUT_SUCCESSOR.get(key))
        if key in ONE_VALUE or key in WITHOUT_SUCCESSOR:
            translated.notes.append(f"config.{key} is ignored: this value has no effect")
        else:
            translated.values[key] = value


def _check_meaning(name: str, value: Any, only: tuple[Any, str] | None, reason: str | None) -> None:
    """Raises UserError for a value that changes what is learned and cannot do so today."""
    if only is not None and value not in (only[0], None):
        raise UserError(f"{name}: {value!r}: {only[1]}")
    if reason is not None and (value or isinstance(value, SearchSpace)):
        raise UserError(f"{name}: it has no equivalent: {reason}")


def _value_today(translated: Translated, key: str, value: Any) -> Any:
    """Returns a setting's value in today's notation."""
    if value == "auto":
        translated.notes.append(f"config.{key} is left to its default: auto")
        return None
    if key == "clip_rewards" and isinstance(value, float) and value == 1.0:
        translated.notes.append("config.clip_rewards is now true: rewards are clipped to [-1, 1]")
        return True
    return value


def _translate_inside(
    translated: Translated, config: dict[str, Any], key: str, value: Any, run: Algorithm
) -> None:
    """Adds the settings inside of a key of `config`."""
    if key in ("num_gpus", "num_accs"):
        num_learners, gpus_each = learners_of_gpus(key, value)
        if not num_learners and {"num_learners", "num_learner_workers"} & config.keys():
            translated.notes.append(f"config.{key} is ignored: the learners have their own GPUs")
            return
        _rename("config", translated, config, key, "num_learners", num_learners)
        _rename("config", translated, config, key, "num_gpus_per_learner", gpus_each)
    elif value is None:
        return
    elif key == "exploration_config":
        name, setting = exploration(value, run, translated.notes)
        if name == "explore" and name in config:
            return
        _rename("config", translated, config, key, name, setting)
    elif not isinstance(value, dict):
        raise UserError(f"config.{key}: {value!r} is not a mapping of settings")
    else:
        for name, setting in value.items():
            with translated.collecting():
                if key == "model":
                    _translate_model(translated, config, name, setting)
                elif key in SAC_NETWORKS:
                    _translate_sac_network(translated, config, key, name, setting)
                else:
                    _translate_known(translated, config, key, name, setting)


def _translate_model(translated: Translated, config: dict[str, Any], name: str, value: Any) -> None:
    key = f"model.{name}"
    if name in RENAMED_MODEL:
        _rename("config", translated, config, key, RENAMED_MODEL[name], value)
    elif any(name in settings.model_fields for settings in SETTINGS.values()):
        _rename("config", translated, config, key, name, value)
    elif name in IGNORED_MODEL:
        translated.notes.append(f"config.{key} is ignored: {IGNORED_MODEL[name]}")
    else:
        only, without = MODEL_ONE_VALUE.get(name), MODEL_WITHOUT_SUCCESSOR.get(name)
        _check_meaning(f"config.{key}", value, only, without)
        if only or without:
            translated.notes.append(f"config.{key} is ignored: this value has no effect")
        else:
            translated.values[key] = value


def _translate_sac_network(
    translated: Translated, config: dict[str, Any], key: str, name: str, value: Any
) -> None:
    """Adds a shape of SAC's networks, which has to be the same for policy and Q-function."""
    if name not in ("fcnet_hiddens", "fcnet_activation"):
        _translate_model(translated, config, name, value)
    elif translated.given.get(name, "").partition(".")[0] not in SAC_NETWORKS:
        _rename("config", translated, config, f"{key}.{name}", name, value)
    elif translated.values[name] != value:
        raise UserError(
            f"config.{key}.{name}: {value!r}: {translated.given[name]} is "
            f"{translated.values[name]!r}, and RLlib's SAC now has one shape for both"
        )


def _translate_known(
    translated: Translated, config: dict[str, Any], key: str, name: str, value: Any
) -> None:
    inner = f"{key}.{name}"
    if name in RENAMED_IN[key]:
        _rename("config", translated, config, inner, RENAMED_IN[key][name], value)
    elif name in IGNORED_IN[key]:
        translated.notes.append(f"config.{inner} is ignored: {IGNORED_IN[key][name]}")
    elif key == "replay_buffer_config" and name == "type":
        _replay(translated, config, f"config.{inner}", "Prioritized" in str(value))
    else:
        near = nearest(name, [*RENAMED_IN[key], *IGNORED_IN[key]])
        raise UserError(f"config.{inner}: unknown key{near}")


def _replay(translated: Translated, config: dict[str, Any], name: str, prioritized: bool) -> None:
    """Adds a replay buffer with or without priorities."""
    if prioritized:
        translated.notes.append(f"{name} is ignored: the buffer is prioritized")
    else:
        key = name.removeprefix("config.")
        _rename("config", translated, config, key, "prioritized_replay_alpha", 0.0)


def _reason_to_ignore(key: str, config: dict[str, Any], run: Algorithm) -> str | None:
    if key == "epsilon" and RMSPROP & config.keys():
        return IGNORED_CONFIG["decay"]
    return None if key in SETTINGS[run].model_fields else _ignored(run).get(key)


def _ignored(run: Algorithm) -> dict[str, str]:
    """Returns the reason of each key of `config` that an algorithm ignores."""
    if run in ("IMPALA", "APPO"):
        return IGNORED_CONFIG | IGNORED_BY_IMPALA
    ignored = IGNORED_CONFIG | dict.fromkeys(IGNORED_BY_IMPALA, f"{run} has no such setting")
    return ignored | IGNORED_BY_PPO if run == "PPO" else ignored


def translate_stop(stop: dict[str, Any]) -> Translated:
    """Returns the stop criteria under today's names."""
    translated = Translated()
    for key, value in stop.items():
        with translated.collecting():
            if key in RENAMED_STOP:
                _rename("stop", translated, stop, key, RENAMED_STOP[key], value)
            elif key.startswith(INFO_MEAN):
                of_info = translated.values.setdefault(INFO_MEAN.rstrip("/"), {})
                of_info[key.removeprefix(INFO_MEAN)] = value
            else:
                translated.values[key] = value
    return translated


def translate_needs(values: Mapping[str, Any]) -> Translated:
    """Returns the keys of a file, beside `config` and `stop`, under today's names.

    Raises:
        UserError: A key is given under both its old and its new name.
    """
    translated = Translated()
    for key, value in values.items():
        if (new := RENAMED_NEEDS.get(key)) is None:
            translated.values[key] = value
        elif new in values:
            raise UserError(f"{key}: {new} is set too; keep one of the two")
        else:
            translated.values[new] = value
            translated.notes.append(f"{key} is now {new}: {value}")
    return translated


def translate_keys(values: Mapping[str, Any]) -> Translated:
    """Returns the keys of an experiment without those that only Tune has."""
    translated = Translated()
    for key, value in values.items():
        if key in IGNORED_KEYS:
            translated.notes.append(f"{key} is ignored: {IGNORED_KEYS[key]}")
        elif key in KEYS_WITHOUT_SUCCESSOR:
            with translated.collecting():
                _check_meaning(key, value, None, KEYS_WITHOUT_SUCCESSOR[key])
        else:
            translated.values[key] = value
    return translated


def old_names_of(section: str, key: str) -> list[str]:
    """Returns the older names that an unknown key of a section may mean."""
    if section == "stop":
        return list(RENAMED_STOP)
    if key.startswith("model."):
        names = (*RENAMED_MODEL, *IGNORED_MODEL, *MODEL_ONE_VALUE, *MODEL_WITHOUT_SUCCESSOR)
        return [f"model.{name}" for name in names]
    return (
        [*RENAMED_CONFIG, *IGNORED_CONFIG, *IGNORED_BY_IMPALA, *ONE_VALUE, *WITHOUT_SUCCESSOR]
        if section == "config"
        else [DURATION, *RENAMED_NEEDS, *IGNORED_KEYS]
    )


def _rename(
    section: str, translated: Translated, given: dict[str, Any], old: str, new: str, value: Any
) -> None:
    if new in given or new in translated.values:
        raise UserError(f"{section}.{old}: {new} is set too; keep one of the two")
    translated.values[new] = value
    translated.given[new] = old
    translated.notes.append(f"{section}.{old} is now {new}: {value}")
