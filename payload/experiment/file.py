"""An experiment file: YAML, read and written."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from payload.errors import UserError, nearest
from payload.experiment.arguments import AS_WRITTEN
from payload.experiment.bounded_yaml import BoundedLoader
from payload.experiment.settings import Experiment

ENTRY_SCRIPT = "entry_script"
"""A file with this key describes a script."""


TUPLE = "tag:yaml.org,2002:python/tuple"
"""What PyYAML writes before a tuple: !!python/tuple."""


class _Loader(BoundedLoader):
    """Reads 5e-5 as a number, as YAML 1.2 and JSON do; YAML 1.1 wants 5.0e-5."""


class _Dumper(yaml.SafeDumper):
    """Quotes text that _Loader would take for a number."""


def _tuple(loader: Any, node: Any) -> tuple[Any, ...]:
    return tuple(loader.construct_sequence(node, deep=True))


_Loader.add_constructor(TUPLE, _tuple)
_Dumper.add_representer(tuple, lambda dumper, value: dumper.represent_sequence(TUPLE, value))

for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


def read_file(path: Path) -> dict[str, Any]:
    """Reads an experiment file (YAML; JSON is YAML).

    A file of `rllib train`, {name: {run, env, ...}}, is accepted too, with one experiment.

    Raises:
        UserError: The file cannot be read or does not hold an experiment.
    """
    try:
        raw = read_mapping(path.read_text("utf-8"))
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        near = nearest(path.name, (p.name for p in path.parent.glob("*"))) if missing else ""
        raise UserError(f"{path}: cannot be read: {error.strerror}{near}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not UTF-8 text") from None
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path}: is not YAML: {' '.join(str(error).split())}") from None
    if isinstance(raw, dict) and raw and all(map(_is_experiment, raw.values())):
        if len(raw) > 1:
            names = ", ".join(map(str, raw))
            raise UserError(f"{path}: has {len(raw)} experiments ({names}); give each its own file")
        (raw,) = raw.values()
    if not isinstance(raw, dict):
        raise UserError(f"{path}: is not a mapping of run, env, config and stop")
    return raw


def read_mapping(text: str) -> Any:
    """Reads YAML by the rules of experiment files; raises yaml.YAMLError or ValueError."""
    return yaml.load(text, Loader=_Loader)


def to_yaml(experiment: Experiment) -> str:
    """Returns the text of an experiment file that reads back as this experiment."""
    # JSON would change the arguments of an environment: it has text as keys, and no dates.
    text = experiment.model_dump_json(
        exclude_unset=True, by_alias=True, exclude={"config": set(AS_WRITTEN)}
    )
    values = json.loads(text)
    for name in AS_WRITTEN:
        if name in experiment.config.model_fields_set:
            values.setdefault("config", {})[name] = getattr(experiment.config, name)
    if not values.get("config"):
        values.pop("config", None)
    if experiment.search:
        searched = {key: space.to_plain() for key, space in experiment.search.items()}
        values["config"] = {**values.get("config", {}), **searched}
    # pydantic lists the keys that an experiment shares with scripts before its own.
    first = [key for key in ("run", "env", "config", "stop") if key in values]
    return dump({key: values[key] for key in (*first, *values)})


def dump(values: dict[str, Any]) -> str:
    """Returns YAML that read_mapping reads back, in the order of the keys."""
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False)
    return text


def _is_experiment(value: Any) -> bool:
    return isinstance(value, dict) and ("run" in value or "env" in value)
