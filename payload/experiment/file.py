"""An experiment file: YAML, read and written."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from payload.errors import UserError, nearest
from payload.experiment.bounded_yaml import BoundedLoader
from payload.experiment.settings import Experiment

ENTRY_SCRIPT = "entry_script"
"""A file with this key describes a script."""


class _Loader(BoundedLoader):
    """Reads 5e-5 as a number, as YAML 1.2 and JSON do; YAML 1.1 wants 5.0e-5."""


class _Dumper(yaml.SafeDumper):
    """Quotes text that _Loader would take for a number."""


for _class in (_Loader, _Dumper):
    _class.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


def read_file(path: Path) -> dict[str, Any]:
    """Reads an experiment file (YAML; JSON is YAML).

    A file of `rllib train`, {name: {run, env, ...}}, is accepted too.

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
    if isinstance(raw, dict) and len(raw) == 1:
        (inner,) = raw.values()
        if isinstance(inner, dict) and ("run" in inner or "env" in inner):
            raw = inner
    if not isinstance(raw, dict):
        raise UserError(f"{path}: is not a mapping of run, env, config and stop")
    return raw


def read_mapping(text: str) -> Any:
    """Reads YAML by the rules of experiment files; raises yaml.YAMLError or ValueError."""
    return yaml.load(text, Loader=_Loader)


def to_yaml(experiment: Experiment) -> str:
    """Returns the text of an experiment file that reads back as this experiment."""
    values = json.loads(experiment.model_dump_json(exclude_unset=True, by_alias=True))
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
