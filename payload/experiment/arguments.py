"""The values that an environment's arguments may have: those that YAML keeps as they are."""

import datetime
from typing import Any

SCALARS = (type(None), bool, int, float, str, bytes, datetime.date, datetime.datetime)
SEQUENCES = (list, tuple, set)
ALLOWED = "numbers, text, bytes, dates, lists, tuples, sets, mappings"


AS_WRITTEN = ("env_config", "wrappers", "module_config")
"""Settings of `config` with such values."""


def problem_of_arguments(arguments: dict[Any, Any], key: str = "config.env_config") -> str | None:
    """Returns why arguments could not travel with an experiment's file, None if they can.

    Args:
        key: What they are the value of.
    """
    for name, value in arguments.items():
        if not isinstance(name, str):
            return f"{key}: {name!r}: an argument's name is text"
        try:
            foreign = _foreign_type(value)
        except RecursionError:
            return f"{key}.{name}: contains itself, or is nested too deeply"
        if foreign is not None:
            return (
                f"{key}.{name}: a value of type {foreign} cannot be written to an "
                f"experiment's file; allowed: {ALLOWED}"
            )
    return None


def canonical(value: Any) -> Any:
    """Returns a value as JSON: equal for equal values of equal types, and for no others."""
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: canonical(inner) for key, inner in value.items()}
    if type(value) is dict:
        return {"dict": sorted([repr(key), canonical(inner)] for key, inner in value.items())}
    if type(value) is list:
        return [canonical(inner) for inner in value]
    if type(value) is tuple:
        return {"tuple": [canonical(inner) for inner in value]}
    if type(value) is set:
        return {"set": sorted(map(repr, value))}
    return value if type(value) in (type(None), bool, int, float, str) else {"": repr(value)}


def _foreign_type(value: Any) -> str | None:
    """Returns the name of a type in a value that YAML does not have."""
    # A subclass, as numpy's float64, would come back as its base.
    if type(value) in SCALARS:
        return None
    if type(value) is dict:
        inside = [*value, *value.values()]
    elif type(value) in SEQUENCES:
        inside = list(value)
    else:
        return type(value).__name__
    return next((name for inner in inside if (name := _foreign_type(inner)) is not None), None)
