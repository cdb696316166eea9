"""Numbers as people write them: 1e6 and 1000.0 for a count, 1h30m for seconds."""

import re
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from payload.experiment.search_space import LISTS, SearchSpace

POWER = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
"""What readers of YAML 1.1 take for text: 1e6 and 5e-5."""
UNITS_S = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "min": 60.0, "s": 1.0}
PART = r"([0-9]+(?:\.[0-9]+)?)\s*(d|h|min|m|s)\s*"
DURATION = re.compile(rf"({PART})+")
DURATIONS = "seconds, or 90s, 30m, 1h30m, 2d"


def as_written(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a section with its numbers as the fields of its model want them.

    A value that is not a number stays as it is: the model refuses it.
    """
    fields = model.model_fields
    types = {field.alias or name: types_of(field.annotation) for name, field in fields.items()}
    return {key: _meant(key, value, types.get(key, [])) for key, value in values.items()}


def whole_number(value: Any) -> Any:
    """Returns a float without a fraction as an int, anything else as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def takes_duration(name: str) -> bool:
    """Whether a number of this name is a duration, in seconds."""
    return name.endswith("_s")


def types_of(annotation: Any) -> list[Any]:
    """Returns the types of a union, `list` for a list of anything."""
    parts = get_args(annotation) if get_origin(annotation) in (UnionType, Union) else [annotation]
    types: list[Any] = []
    for part in parts:
        inner = get_args(part)[0] if get_origin(part) is Annotated else part
        types.append(get_origin(inner) or inner)
    return types


def _meant(name: str, value: Any, types: list[Any]) -> Any:
    if isinstance(value, SearchSpace):
        if value.kind not in LISTS:
            return value
        return SearchSpace(value.kind, tuple(_meant(name, each, types) for each in value.values))
    if isinstance(value, str) and {int, float} & set(types):
        if POWER.fullmatch(value):
            value = float(value)
        elif takes_duration(name) and DURATION.fullmatch(value.strip()):
            parts = re.findall(PART, value)
            return sum(float(number) * UNITS_S[unit] for number, unit in parts)
    return whole_number(value) if int in types and float not in types else value
