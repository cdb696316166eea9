"""What can be wrong with the experiment: the payload would refuse it, or the head cannot run it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import yaml

from infra.config.problem import Problem
from infra.config.vm_sizes import SIZES, nearest

if TYPE_CHECKING:
    from infra.config.settings import StackSettings

EXPERIMENT_SCHEMA = Path("payload/experiment/experiment.schema.json")


def check_experiment(settings: StackSettings, root: Path) -> Iterator[Problem]:
    """The payload would take the experiment, and the head has the GPU that it asks for."""
    key, path = "experiment", root / settings.experiment
    try:
        experiment: Any = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        yield Problem(key, settings.experiment, f"cannot be read ({error.strerror})")
    except UnicodeDecodeError:
        yield Problem(key, settings.experiment, "is no UTF-8 text")
    except yaml.YAMLError:
        yield Problem(key, settings.experiment, "is no YAML")
    else:
        if isinstance(experiment, dict):
            yield from _refused(f"{key} {settings.experiment}", experiment, root)
            yield from _check_gpus(settings, experiment.get("config"))
        else:
            allowed = "must be a mapping of run, env, config and stop"
            yield Problem(key, settings.experiment, allowed)


def _refused(key: str, experiment: dict[Any, Any], root: Path) -> Iterator[Problem]:
    schema = json.loads((root / EXPERIMENT_SCHEMA).read_text("utf-8"))
    for refused in jsonschema.Draft202012Validator(schema).iter_errors(experiment):
        # Behind "null or a mapping" stands what is wrong with the mapping.
        deepest = jsonschema.exceptions.best_match([refused])
        yield Problem(key, *_explain(deepest or refused))


def _explain(error: jsonschema.ValidationError) -> tuple[object, str]:
    """Returns the value that a schema refuses, and why, with the nearest known key."""
    path = ".".join(str(part) for part in error.absolute_path)
    if error.validator == "additionalProperties":
        schema: Any = error.schema
        given: Any = error.instance
        known = schema["properties"]
        unknown = str(next(name for name in given if name not in known))
        where = f"{path}.{unknown}" if path else unknown
        return where, f"unknown key{nearest(unknown, known)}"
    return {path: error.instance}, error.message


def _check_gpus(settings: StackSettings, config: Any) -> Iterator[Problem]:
    if not isinstance(config, dict):
        return
    asked = config.get("num_gpus", config.get("num_gpus_per_learner", 0))
    size = SIZES.get(settings.head_size)
    if size is not None and isinstance(asked, int | float) and asked > size.gpus:
        yield Problem(
            "headSize",
            settings.head_size,
            f"has {size.gpus} GPUs; the experiment asks for {asked:g}",
        )
