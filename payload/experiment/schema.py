"""The JSON schema of an experiment file, for editors and for whoever starts trainings.

`python -m payload.experiment.schema` prints it; `make schema` keeps experiment.schema.json.
"""

from __future__ import annotations

import json
from typing import Any

from payload.experiment.old_names import (
    IGNORED_CONFIG,
    IGNORED_MODEL,
    RENAMED_CONFIG,
    RENAMED_MODEL,
    RENAMED_STOP,
)
from payload.experiment.settings import Experiment


def experiment_schema() -> dict[str, Any]:
    """Returns the schema; a setting's older name has the type that it has today."""
    schema = Experiment.model_json_schema()
    config, stop = (schema["$defs"][name]["properties"] for name in ("Settings", "Stop"))
    model = {old: config[new] for old, new in RENAMED_MODEL.items()}
    model |= {old: _ignored(why) for old, why in IGNORED_MODEL.items()}
    config |= {old: _renamed(config[new], new) for old, new in RENAMED_CONFIG.items()}
    config |= {old: _ignored(why) for old, why in IGNORED_CONFIG.items()}
    config["num_gpus"] = {"type": "number", "minimum": 0, "description": "GPUs, one learner each."}
    config["exploration_config"] = {"description": "A policy gradient explores by sampling."}
    config["model"] = {"type": "object", "properties": model, "additionalProperties": False}
    stop |= {old: _renamed(stop[new], new) for old, new in RENAMED_STOP.items()}
    for section in ("config", "stop"):  # A section left empty in a file is null.
        schema["properties"][section] = {
            "anyOf": [schema["properties"][section], {"type": "null"}],
        }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _renamed(setting: dict[str, Any], new: str) -> dict[str, Any]:
    return {**setting, "description": f"Now {new}."}


def _ignored(why: str) -> dict[str, Any]:
    return {"description": f"Ignored: {why}."}


if __name__ == "__main__":
    print(json.dumps(experiment_schema(), indent=1))
