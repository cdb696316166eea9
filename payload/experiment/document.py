"""Writes what documents say of settings: tables in docs/, and a schema for editors.

    python -m payload.experiment.document [ROOT]

The docstring beside a setting is its description. Its last sentence may be "Default: ..." where the
default is not a value, or "RLlib: ..." with RLlib's default where volley has none of its own.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import models_json_schema

from payload.experiment.fragment_settings import ByAlgorithm
from payload.experiment.impala_settings import ImpalaSettings
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
    RENAMED_ENVS,
    RENAMED_IN,
    RENAMED_MODEL,
    RENAMED_NEEDS,
    RENAMED_STOP,
    SAC_NETWORKS,
    WITHOUT_SUCCESSOR,
)
from payload.experiment.pqn_settings import PQNSettings
from payload.experiment.search_space import KINDS, NOT_SEARCHED
from payload.experiment.settings import SETTINGS, Experiment, Stop
from payload.experiment.settings_of_every_algorithm import (
    AlgorithmSettings,
    AtariOnly,
    ByEnvironment,
    OtherOnly,
)
from payload.experiment.written_numbers import takes_duration

PAGE, OLDER = Path("docs/algorithm.md"), Path("docs/rllib_train.md")
SCHEMA = Path("docs/experiment.schema.json")
NAMES = {name for model in SETTINGS.values() for name in model.model_fields}
UNMISTAKABLE = [name for name in sorted(NAMES) if "_" in name or name == "lr"]
"""Names of settings that are not words of a sentence."""
SETTING = re.compile(rf"(?<!`)\b({'|'.join(UNMISTAKABLE)})\b(?!`)")
LAST_SENTENCE = re.compile(r"\s*\b(Default|RLlib): (.*)\.$")


def main(root: Path) -> None:
    for path, text in documents(root).items():
        (root / path).write_text(text)


def documents(root: Path) -> dict[Path, str]:
    """Returns the text that each document should have, by its path below the repository's root."""
    pages = {PAGE: _tables(), OLDER: _tables_of_older_names()}
    texts = {path: _with_tables((root / path).read_text(), t) for path, t in pages.items()}
    return {**texts, SCHEMA: json.dumps(schema(), indent=1) + "\n"}


def _with_tables(page: str, tables: dict[str, Iterable[str]]) -> str:
    for name, lines in tables.items():
        begin, end = f"<!-- {name}: written by make docs -->\n", f"<!-- end of {name} -->"
        before, rest = page.split(begin)
        _, after = rest.split(end, 1)
        page = before + begin + "\n".join([*lines, end]) + after
    return page


def _tables() -> dict[str, Iterable[str]]:
    """Returns the lines of each table of settings by its name."""
    return {
        "settings": _settings(ImpalaSettings, ImpalaSettings.model_fields),
        "PQN": _settings(PQNSettings, PQNSettings.__annotations__),
        **{run: _settings(SETTINGS[run], _own(SETTINGS[run])) for run in ("PPO", "DQN", "SAC")},
        "criteria": [
            "| criterion | meaning |",
            "|---|---|",
            *(f"| `{f.alias or name}` | {_meaning(f)} |" for name, f in Stop.model_fields.items()),
        ],
    }


def _tables_of_older_names() -> dict[str, Iterable[str]]:
    """Returns the lines of each table of older names by its name."""
    inside = {key: {f"{key}.{k}": new for k, new in m.items()} for key, m in RENAMED_IN.items()}
    renamed = RENAMED_CONFIG | {f"model.{old}": new for old, new in RENAMED_MODEL.items()}
    today = {old: f"`{new}`" for names in (renamed, *inside.values()) for old, new in names.items()}
    today["num_gpus"] = "`num_learners` and `num_gpus_per_learner`: a learner for each GPU"
    today["horizon"] = "`env_config.max_episode_steps`"
    today["exploration_config"] = "`epsilon` or `explore`"
    today["prioritized_replay"] = "`prioritized_replay_alpha`, which is 0 without priorities"
    today["seed: {grid_search: [...]}"] = "`seed` and `num_seeds`"
    today |= dict.fromkeys(SAC_NETWORKS, "`fcnet_hiddens`, `fcnet_activation`")
    ignored = (
        IGNORED_CONFIG | IGNORED_BY_IMPALA | {"PPO's " + k: v for k, v in IGNORED_BY_PPO.items()}
    )
    ignored |= {f"model.{name}": reason for name, reason in IGNORED_MODEL.items()}
    for key, names in IGNORED_IN.items():
        ignored |= {f"{key}.{name}": reason for name, reason in names.items()}
    values = ONE_VALUE | {f"model.{name}": only for name, only in MODEL_ONE_VALUE.items()}
    only = {old: f"only `{json.dumps(v)}`: {why}" for old, (v, why) in values.items()}
    without = only | WITHOUT_SUCCESSOR | KEYS_WITHOUT_SUCCESSOR
    without |= {f"model.{name}": reason for name, reason in MODEL_WITHOUT_SUCCESSOR.items()}
    keys = {old: f"`{new}`" for old, new in RENAMED_NEEDS.items()} | IGNORED_KEYS
    keys[DURATION] = "`stop.time_total_s`"
    return {
        "older settings": _two_columns("in `config`", "today", today),
        "older criteria": _two_columns(
            "in `stop`", "today", {old: f"`{new}`" for old, new in RENAMED_STOP.items()}
        ),
        "older keys": _two_columns("beside `config`", "today", keys),
        "older environments": _two_columns(
            "`env`", "today", {old: f"`{new}`" for old, new in RENAMED_ENVS.items()}
        ),
        "ignored settings": _two_columns("in `config`", "reason", ignored),
        "refused settings": _two_columns("key", "reason", without),
    }


def _two_columns(left: str, right: str, rows: dict[str, str]) -> list[str]:
    cells = {old if "'s " in old else f"`{old}`": text for old, text in rows.items()}
    marked = {old: SETTING.sub(r"`\1`", text) for old, text in cells.items()}
    lines = [f"| {old} | {text} |" for old, text in marked.items()]
    return [f"| {left} | {right} |", "|---|---|", *lines]


def _own(model: type[AlgorithmSettings]) -> Iterator[str]:
    """Yields the settings that not all algorithms have, or that this one defines differently."""
    for name, field in model.model_fields.items():
        shared = AlgorithmSettings.model_fields.get(name)
        if shared is None or (shared.default, shared.description) != (
            field.default,
            field.description,
        ):
            yield name
    yield "image_size"


def _settings(model: type[BaseModel], names: Iterable[str]) -> Iterator[str]:
    yield from ("| setting | default | meaning |", "|---|---|---|")
    for name in names:
        field = model.model_fields[name]
        yield f"| `{name}` | {default_in_words(field)} | {_meaning(field)} |"


def default_in_words(field: FieldInfo) -> str:
    """Returns a setting's default, as the tables show it."""
    last = LAST_SENTENCE.search(" ".join((field.description or "").split()))
    if last is not None and last[1] == "Default":
        return SETTING.sub(r"`\1`", last[2])
    value = next((_marked(m) for m in field.metadata if _marked(m)), None)
    if last is not None:
        return f"RLlib's: {last[2]}" + (f"; Atari games {value}" if value else "")
    return value or _value(field.default)


def _marked(marker: Any) -> str:
    if isinstance(marker, ByAlgorithm):
        return _value(marker)
    if not isinstance(marker, ByEnvironment):
        return ""
    other = f", other environments {_value(marker.other)}" if marker.other is not None else ""
    return _value(marker.atari) + other


def _value(default: Any) -> str:
    if isinstance(default, ByAlgorithm):
        pqn = f", PQN {_value(default.pqn)}" if default.pqn is not None else ""
        return f"{_value(default.impala)}, APPO {_value(default.appo)}{pqn}"
    return "none" if default is None else f"`{json.dumps(default)}`"


def _meaning(field: FieldInfo) -> str:
    text = LAST_SENTENCE.sub("", " ".join((field.description or "").split()))
    text = SETTING.sub(r"`\1`", text.removesuffix(".").replace("|", "\\|"))
    if OtherOnly in field.metadata:
        return f"Not on Atari games. {text}"
    return f"Atari only. {text}" if AtariOnly in field.metadata else text


def schema() -> dict[str, Any]:
    """Returns the JSON schema of an experiment file; each algorithm has settings of its own."""
    models = [(model, "validation") for model in {*SETTINGS.values(), Experiment}]
    _, definitions = models_json_schema(
        sorted(models, key=lambda pair: pair[0].__name__),  # type: ignore[arg-type]
        ref_template="#/$defs/{model}",
    )
    defs: dict[str, Any] = definitions["$defs"]
    experiment = defs.pop("Experiment")
    del defs["AlgorithmSettings"]
    defs["SearchSpace"] = {
        "description": "A search space of `volley tune`.",
        "type": "object",
        "properties": {kind: {"type": "array", "minItems": 1} for kind in KINDS},
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }
    ignored = IGNORED_CONFIG | IGNORED_BY_IMPALA
    inside = (*RENAMED_IN, *SAC_NETWORKS)
    for model in SETTINGS.values():
        properties = defs[model.__name__]["properties"]
        for name, setting in properties.items():
            setting.pop("title", None)
            if name not in NOT_SEARCHED:
                options = setting.pop("anyOf", None) or [_without_description(setting)]
                setting["anyOf"] = [*options, {"$ref": "#/$defs/SearchSpace"}]
        properties |= {
            old: _deprecated(f"is now {new}")
            for old, new in RENAMED_CONFIG.items()
            if new in properties and old not in properties
        }
        properties |= {
            old: _deprecated(f"is ignored: {why}")
            for old, why in ignored.items()
            if old not in properties
        }
        properties |= {
            old: _deprecated(f"may only be {json.dumps(value)}: {why}")
            for old, (value, why) in ONE_VALUE.items()
        }
        properties |= {old: _deprecated("is now several settings") for old in inside}
        properties["horizon"] = _deprecated("is now env_config.max_episode_steps")
        properties["prioritized_replay"] = _deprecated("is now prioritized_replay_alpha")
        properties["env"] = _deprecated("is now env, beside config")
        properties["num_gpus"] = _deprecated("is now num_learners and num_gpus_per_learner")
        properties["exploration_config"] = _deprecated("is now explore or epsilon")
        properties["model"] = {
            "deprecated": True,
            "properties": {name: {} for name in (*RENAMED_MODEL, *IGNORED_MODEL, *properties)},
            "additionalProperties": False,
        }
    criteria = defs["Stop"]["properties"]
    criteria |= {old: _deprecated(f"is now {new}") for old, new in RENAMED_STOP.items()}
    sections = {*(model.__name__ for model in SETTINGS.values()), "Stop"}
    for section in [defs[name]["properties"] for name in sorted(sections)]:
        for name in filter(takes_duration, section):
            if (text := {"type": "string"}) not in section[name].get("anyOf", [text]):
                section[name]["anyOf"].append(text)
    properties = experiment["properties"]
    # Which settings there are depends on `run`; an empty section of a file is null.
    properties["config"] = {"description": properties["config"]["description"]}
    properties["stop"] = {"anyOf": [{"$ref": "#/$defs/Stop"}, {"type": "null"}]}
    properties[DURATION] = _deprecated("is now stop.time_total_s")
    properties |= {old: _deprecated(f"is now {new}") for old, new in RENAMED_NEEDS.items()}
    properties |= {old: _deprecated(f"is ignored: {why}") for old, why in IGNORED_KEYS.items()}
    others = [run for run in SETTINGS if SETTINGS[run] is not ImpalaSettings]
    is_other = {"properties": {"run": {"enum": others}}, "required": ["run"]}
    rules = [{"if": {"not": is_other}, "then": _config_of(ImpalaSettings)}]
    rules += [
        {
            "if": {"properties": {"run": {"const": run}}, "required": ["run"]},
            "then": _config_of(SETTINGS[run]),
        }
        for run in others
    ]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **experiment,
        "title": "An experiment of volley",
        "allOf": rules,
        "$defs": defs,
    }


def _config_of(model: type[BaseModel]) -> dict[str, Any]:
    options = [{"$ref": f"#/$defs/{model.__name__}"}, {"type": "null"}]
    return {"properties": {"config": {"anyOf": options}}}


def _without_description(setting: dict[str, Any]) -> dict[str, Any]:
    """Removes a setting's constraints from its schema and returns them."""
    return {key: setting.pop(key) for key in [*setting] if key not in ("description", "default")}


def _deprecated(what: str) -> dict[str, Any]:
    return {"deprecated": True, "description": f"An older name; it {what}."}


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
